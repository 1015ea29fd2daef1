// GeneratedCall: the one body of all generated rows.
#include "client/interpose/entry/generated_call.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "client/interpose/call/forward.h"
#include "client/interpose/call/remembered.h"
#include "client/interpose/capture/exec_changes.h"
#include "client/interpose/capture/graph_nodes.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/entry/address_tracking.h"
#include "client/interpose/entry/argument_rules.h"
#include "client/interpose/entry/device_numbers.h"
#include "client/interpose/entry/managed_answers.h"
#include "client/interpose/entry/passing_rows.h"
#include "client/interpose/entry/visible_fills.h"
#include "client/interpose/memory/memory_changes.h"
#include "driver_abi/semantics/handle_errors.h"
#include "protocol/calls/call.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::Completion;
using driver_abi::Direction;
using driver_abi::kNoParameter;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

bool comes_out_minted(const Parameter& parameter) {
  return parameter.shape == Shape::kHandlePointee && parameter.direction == Direction::kOut;
}

// Graphs belong to no context (manual, "Graph Management"). Their handles outlive every context.
bool belongs_to_no_context(HandleKind kind) {
  switch (kind) {
    case HandleKind::kGraph:
    case HandleKind::kGraphNode:
    case HandleKind::kGraphExec:
    case HandleKind::kUserObject:
    case HandleKind::kMemoryPool:
    case HandleKind::kAllocation:
      return true;
    default:
      return false;
  }
}

// Calls that CUDA makes without a current context. All others return INVALID_CONTEXT. A default
// stream is the current context's.
bool needs_no_context(const Row& row) {
  if (row.stream_parameter != kNoParameter) return false;
  for (const std::string_view start :
       {"cuGraph", "cuUserObject", "cuDevice", "cuMemPool", "cuMemMap", "cuMemUnmap",
        "cuMemRelease", "cuMemSetAccess", "cuMemSetMemPool", "cuMemGetMemPool",
        "cuMemGetDefaultMemPool"}) {
    if (std::string_view(row.base).substr(0, start.size()) == start) return true;
  }
  return false;
}

// Their parameters are node, graph, dependencies, count.
bool adds_node(std::uint16_t row) {
  switch (row) {
    case opcode::cuGraphAddChildGraphNode:
    case opcode::cuGraphAddEmptyNode:
    case opcode::cuGraphAddEventRecordNode:
    case opcode::cuGraphAddEventWaitNode:
    case opcode::cuGraphAddMemFreeNode:
    case opcode::cuGraphAddMemsetNode:
      return true;
    default:
      return false;
  }
}

// Calls that leave the kernel nodes of an executable as they are.
bool keeps_kernel_nodes(std::uint16_t row) {
  switch (row) {
    case opcode::cuGraphExecChildGraphNodeSetParams:
    case opcode::cuGraphExecEventRecordNodeSetEvent:
    case opcode::cuGraphExecEventWaitNodeSetEvent:
    case opcode::cuGraphExecGetFlags:
    case opcode::cuGraphExecGetId:
    case opcode::cuGraphExecMemsetNodeSetParams:
    case opcode::cuGraphLaunch:
    case opcode::cuGraphUpload:
      return true;
    default:
      return false;
  }
}

bool ends_graph_part(std::uint16_t row) {
  return row == opcode::cuGraphDestroy || row == opcode::cuGraphDestroyNode;
}

// One call of a generated row, from the program's arguments to its outputs.
class GeneratedCall {
 public:
  GeneratedCall(const Row& row, void* const* arguments, Rules rules)
      : row_(row), program_(arguments), rules_(rules) {
    for (std::size_t i = 0; i < row.parameters.size(); ++i) arguments_[i] = arguments[i];
  }

  int run() {
    if (const int result = here_.enter(); result != 0) return result;
    // Without a context, a call that waits gets the error from the worker's driver if it needs one.
    context_result_ = here_.enter_context();
    if (context_result_ != 0) here_.context = nullptr;
    if (const int result = refuse_in_window(row_, program_); result != 0) return result;
    if (const int result = adopt_arguments(); result != 0) return result;
    Sound sound = Sound::kRight;
    if (rules_ == Rules::kApply) {
      int answer = 0;
      if (has_context() && answer_managed(here_, row_, program_, &answer)) {
        return answer != 0 ? answer : here_.session().health(site().context);
      }
      if (has_context() && fill_visible_plane(here_, row_, program_, &answer)) return answer;
      if (const int result = check_contents(&sound); result != 0) return result;
    }
    if (row_.remembered && rules_ == Rules::kApply) return ask(sound);
    return carry_out(sound);
  }

 private:
  // Asks the worker only if the answer is not remembered.
  int ask(Sound sound) {
    const bool of_context = !needs_no_context(row_);
    if (of_context && here_.context == nullptr) return carry_out(sound);
    const Question question(here_, row_, arguments_.data(),
                            of_context ? here_.context->handle : Handle{0});
    int result = 0;
    if (question.answered(site().context, &result)) return result;
    question_ = &question;
    result = carry_out(sound);
    question_ = nullptr;
    return result;
  }

  int carry_out(Sound sound) {
    if (const int result = mint(); result != 0) return result;
    if (const int result = mint_spares(); result != 0) {
      drop_minted();
      return result;
    }
    protocol::PackedCall packed;
    const Status status = packed.pack(row_, arguments_.data(), {minted_.data(), minted_count_});
    int result = 0;
    forget_answers_changed_by(row_.alias_opcode);
    const int earlier = ends_graph_part(row_.alias_opcode) ? end_of_graph_part(here_, own_[0]) : 0;
    if (!status.ok()) {
      result = status.code() == Code::kCuda ? status.cuda_error() : int{CUDA_ERROR_INVALID_VALUE};
    } else if (row_.completion == Completion::kAsync && sound != Sound::kUnknown) {
      result = post(packed.bytes());
    } else if (row_.alias_opcode == opcode::cuGraphExecChildGraphNodeSetParams) {
      result = set_child(packed.bytes());
    } else if (row_.alias_opcode == opcode::cuGraphExecMemsetNodeSetParams) {
      result = set_fill(packed.bytes(), sound);
    } else {
      result = call(packed.bytes());
    }
    forget_answers_changed_by(row_.alias_opcode);
    if (result != 0) drop_minted();
    keep_spares(result == 0);
    if (result == 0) track_addresses(here_, row_, program_);
    return result != 0 ? result : earlier;
  }

  // The parameters are executable, node, child graph.
  int set_child(ByteView payload) {
    const ExecChange change = child_change_of(here_.handles(), own_[1], own_[2]);
    if (was_accepted(own_[0], change)) {
      const int result = post(payload);
      return result != 0 ? result : changed_early(here_, own_[0], change, {own_[2], false});
    }
    const int result = call(payload);
    if (result == 0) accepted_ordered(own_[0], change);
    return result;
  }

  // The parameters are executable, node, fill, context. The client has checked the fill's memory.
  int set_fill(ByteView payload, Sound sound) {
    const auto* const fill = *static_cast<const CUDA_MEMSET_NODE_PARAMS* const*>(program_[2]);
    ExecChange change;
    if (sound == Sound::kRight) {
      change = memory_change_of(here_.handles(), own_[1],
                                {row_.alias_opcode, own_[3], site().context, fill->elementSize,
                                 fill->width, fill->height, fill->pitch},
                                {fill->dst});
    }
    if (was_accepted(own_[0], change)) {
      const int result = post(payload);
      return result != 0 ? result : changed_early(here_, own_[0], change, {0, true});
    }
    const int result = call(payload);
    if (result == 0) accepted_ordered(own_[0], change);
    return result;
  }

  // Whether the call has all the contexts that it needs. A created stream brings its own.
  bool has_context() const {
    if (context_result_ == 0 || needs_no_context(row_)) return true;
    return row_.stream_parameter != kNoParameter &&
           here_.handles().context_of(own_[row_.stream_parameter]) != 0;
  }

  // Checks handles, translates device numbers for the server, and resolves stream 0.
  int adopt_arguments() {
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      const Parameter& parameter = row_.parameters[i];
      if (const int result = numbers_.adopt(here_.devices(), row_, i, arguments_.data());
          result != 0) {
        return result;
      }
      if (parameter.shape != Shape::kHandle) continue;
      std::memcpy(&own_[i], arguments_[i], sizeof own_[i]);
      arguments_[i] = &own_[i];
      const bool ends = i == row_.destroyed_parameter;
      if (const int result = check_handle(parameter, ends, &own_[i]); result != 0) return result;
      if (parameter.handle == HandleKind::kGraphExec && !keeps_kernel_nodes(row_.alias_opcode)) {
        forget_changes(own_[i]);
      }
      // A graph or another process may record it (cuGraphAddEventRecordNode, cuIpcGetEventHandle).
      const bool of_event = std::string_view(row_.base).substr(0, 7) == "cuEvent";
      if (parameter.handle == HandleKind::kEvent && !of_event) {
        here_.session().event_recorded_elsewhere(own_[i]);
      }
    }
    return 0;
  }

  // Checks the contents of arguments: nodes in lists, and values (argument_rules.h).
  int check_contents(Sound* sound) const {
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      if (row_.parameters[i].shape != Shape::kHandleArray) continue;
      if (const int result = check_list(row_.parameters[i], i); result != 0) return result;
    }
    *sound = has_context() ? check_arguments(here_, row_, program_) : Sound::kRight;
    return *sound == Sound::kWrong ? int{CUDA_ERROR_INVALID_VALUE} : 0;
  }

  // Checks the handles of nodes in a list of the program's, such as dependencies.
  int check_list(const Parameter& parameter, std::size_t index) const {
    if (parameter.direction != Direction::kIn || parameter.handle != HandleKind::kGraphNode ||
        parameter.count_parameter == kNoParameter) {
      return 0;
    }
    const Parameter& counter = row_.parameters[parameter.count_parameter];
    const Handle* list = nullptr;
    std::size_t count = 0;
    std::memcpy(&list, arguments_[index], sizeof list);
    if (counter.shape != Shape::kScalar || counter.element_bytes != sizeof count) return 0;
    std::memcpy(&count, program_[parameter.count_parameter], sizeof count);
    if (list == nullptr || count > limits::kArrayCountMax) return 0;  // Packing refuses it.
    for (std::size_t i = 0; i < count; ++i) {
      if (const int result = here_.check(list[i], parameter.handle); result != 0) return result;
    }
    return 0;
  }

  int check_handle(const Parameter& parameter, bool ends, std::uint64_t* handle) const {
    switch (parameter.handle) {
      case HandleKind::kTextureObject:
      case HandleKind::kSurfaceObject:
      case HandleKind::kGraphConditional:
        return 0;
      case HandleKind::kStream:
        return resolve_stream(here_, as<CUstream>(*handle), handle);
      default:
        if (*handle == 0)
          return parameter.nullable ? 0 : driver_abi::wrong_handle_error(parameter.handle);
    }
    return ends ? here_.check_end(*handle, parameter.handle)
                : here_.check(*handle, parameter.handle);
  }

  int mint() {
    for (const Parameter& parameter : row_.parameters) {
      if (!comes_out_minted(parameter)) continue;
      const bool of_context = here_.context != nullptr && !belongs_to_no_context(parameter.handle);
      const Handle context = of_context ? here_.context->handle : Handle{0};
      const Handle handle = adds_node(row_.alias_opcode)
                                ? mint_node(here_.handles(), own_[1], context)
                                : here_.handles().mint(parameter.handle, context, nullptr);
      if (handle == 0) {
        drop_minted();
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
      minted_[minted_count_++] = handle;
      // The event of another process (cuIpcOpenEventHandle).
      if (parameter.handle == HandleKind::kEvent) here_.session().event_recorded_elsewhere(handle);
    }
    return 0;
  }

  // Replaces output arrays of nodes by our own, with a new handle for each node that the client may
  // not know yet.
  int mint_spares() {
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      const Parameter& parameter = row_.parameters[i];
      if (!protocol::holds_spares(parameter)) continue;
      void* const target = *static_cast<void* const*>(arguments_[i]);
      const void* const counter = *static_cast<void* const*>(arguments_[parameter.count_parameter]);
      if (target == nullptr || counter == nullptr) continue;
      std::size_t count = 0;
      std::memcpy(&count, counter, sizeof count);
      if (count == 0) continue;
      if (count > limits::kArrayCountMax) return CUDA_ERROR_INVALID_VALUE;
      Spares& spares = spares_.emplace_back();
      spares.target = static_cast<Handle*>(target);
      while (spares.minted.size() < count) {
        const Handle handle = here_.handles().mint(parameter.handle, 0, nullptr);
        if (handle == 0) {
          keep_spares(false);
          return CUDA_ERROR_OUT_OF_MEMORY;
        }
        spares.minted.push_back(handle);
      }
      spares.nodes = spares.minted;
      own_[i] = reinterpret_cast<std::uintptr_t>(spares.nodes.data());
      arguments_[i] = &own_[i];
    }
    return 0;
  }

  // Copies the outputs to the program. Handles that no node took are retired.
  void keep_spares(bool succeeded) {
    for (const Spares& spares : spares_) {
      std::vector<Handle> used;
      if (succeeded) {
        std::copy(spares.nodes.begin(), spares.nodes.end(), spares.target);
        for (const Spares& each : spares_) {
          used.insert(used.end(), each.nodes.begin(), each.nodes.end());
        }
        std::sort(used.begin(), used.end());
      }
      for (const Handle handle : spares.minted) {
        if (std::binary_search(used.begin(), used.end(), handle)) {
          adopt_node(here_.handles(), graph_of_nodes(), handle);
        } else {
          here_.handles().retire(handle);
        }
      }
    }
    spares_.clear();
  }

  // The graph of the nodes that the call returns: the one that it names, or that of its node.
  Handle graph_of_nodes() const {
    Handle node = 0;
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      if (row_.parameters[i].shape != Shape::kHandle) continue;
      if (row_.parameters[i].handle == HandleKind::kGraph) return own_[i];
      if (node == 0 && row_.parameters[i].handle == HandleKind::kGraphNode) node = own_[i];
    }
    return reinterpret_cast<std::uintptr_t>(here_.handles().object_of(node));
  }

  // A node ends with its graph. A graph that a call of a node returns is inside the node.
  void own_returned(const Parameter& parameter, Handle returned) {
    if (parameter.handle == HandleKind::kGraphNode) {
      return adopt_node(here_.handles(), graph_of_nodes(), returned);
    }
    // The graph that contains a node does not end with that node.
    if (parameter.handle != HandleKind::kGraph ||
        row_.alias_opcode == opcode::cuGraphNodeGetContainingGraph) {
      return;
    }
    Handle node = 0;
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      if (row_.parameters[i].shape != Shape::kHandle) continue;
      if (row_.parameters[i].handle == HandleKind::kGraph) return;  // A clone.
      if (row_.parameters[i].handle == HandleKind::kGraphNode) node = own_[i];
    }
    if (node != 0) own_handle(here_.handles(), node, returned);
  }

  void drop_minted() {
    for (std::size_t i = 0; i < minted_count_; ++i) here_.handles().retire(minted_[i]);
    minted_count_ = 0;
  }

  CallSite site() const {
    CallSite site = here_.site();
    if (row_.stream_parameter != kNoParameter) {
      site = here_.stream_site(own_[row_.stream_parameter]);
    } else if (row_.destroyed_parameter != kNoParameter && row_.completion == Completion::kAsync) {
      site.order = protocol::Order::kOrderedHost;
      if (row_.alias_opcode == opcode::cuGraphDestroyNode ||
          row_.alias_opcode == opcode::cuGraphDestroy) {
        // Destroying a graph is building too. A later query must not overtake the end of its
        // object.
        site.flags = protocol::kFlagPassesStreams;
      } else {
        memory_returns.fetch_add(1, std::memory_order_relaxed);
      }
    } else if (row_.alias_opcode == opcode::cuMemcpyPeer) {
      // Ordered with the work of both its contexts. Neither need be current.
      site.flags = protocol::kFlagBarrier;
    } else if (passes_streams(row_.alias_opcode)) {
      site.flags = protocol::kFlagPassesStreams;
    }
    site.opcode = row_.alias_opcode;
    order_with_changes(&site);
    return site;
  }

  // A launch follows the posted changes of its executable, and a change follows its launches.
  void order_with_changes(CallSite* site) const {
    if ((site->flags & protocol::kFlagPassesStreams) != 0) return;
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      if (row_.parameters[i].handle != HandleKind::kGraphExec ||
          row_.parameters[i].shape != Shape::kHandle) {
        continue;
      }
      site->subject = own_[i];
      if (row_.stream_parameter == kNoParameter) site->flags |= protocol::kFlagWritesSubject;
      if (row_.completion != Completion::kAsync) site->order = protocol::Order::kLane;
    }
  }

  int post(ByteView payload) {
    // Without a context the driver refuses the call, but a posted call has no reply to tell so.
    const CallSite where = site();
    if (where.context == 0 && !needs_no_context(row_)) return context_result_;
    if (const int result = here_.session().post(*here_.lane, where, payload); result != 0) {
      return result;
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      const Parameter& parameter = row_.parameters[i];
      if (!comes_out_minted(parameter)) continue;
      const Handle handle = minted_[next++];
      void* target = *static_cast<void* const*>(arguments_[i]);
      if (target != nullptr) {
        std::memcpy(target, &handle, sizeof handle);
      } else {
        here_.handles().retire(handle);
      }
    }
    retire_destroyed();
    return 0;
  }

  int call(ByteView payload) {
    Reply reply;
    const int result = here_.session().call(*here_.lane, site(), payload, &reply);
    // The result may be an earlier call's failure although this call has done its work.
    if (reply.result != 0 || reply.payload.empty()) return result != 0 ? result : reply.result;
    const Result<int> unpacked = protocol::unpack_reply(row_, arguments_.data(), reply.payload);
    if (!unpacked) {
      GPURUN_LOG(kError, "%s", unpacked.status().to_string().c_str());
      return CUDA_ERROR_UNKNOWN;
    }
    if (question_ != nullptr) question_->remember(reply.payload);
    const bool containing = row_.alias_opcode == opcode::cuGraphNodeGetContainingGraph;
    if (containing || row_.alias_opcode == opcode::cuGraphChildGraphNodeGetGraph) {
      note_nested_graph();
    }
    keep_returned();
    retire_destroyed();
    return result;
  }

  // The server returned either the minted handle or a handle that the program already has.
  void keep_returned() {
    std::size_t next = 0;
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      const Parameter& parameter = row_.parameters[i];
      if (!comes_out_minted(parameter)) continue;
      const Handle minted = minted_[next++];
      const void* target = *static_cast<const void* const*>(arguments_[i]);
      if (target == nullptr || std::memcmp(target, &minted, sizeof minted) != 0) {
        here_.handles().retire(minted);
        // The program now has two references to the allocation, so the second release ends it.
        if (target != nullptr && parameter.handle == HandleKind::kAllocation) {
          Handle returned = 0;
          std::memcpy(&returned, target, sizeof returned);
          here_.handles().retain(returned);
        }
      } else if (!adds_node(row_.alias_opcode)) {
        own_returned(parameter, minted);
      }
    }
    minted_count_ = 0;
  }

  void retire_destroyed() {
    if (row_.destroyed_parameter == kNoParameter) return;
    const Handle ended = own_[row_.destroyed_parameter];
    const HandleKind kind = row_.parameters[row_.destroyed_parameter].handle;
    here_.handles().release(ended);
    if (kind == HandleKind::kGraph || kind == HandleKind::kGraphNode) {
      retire_owned(here_.handles(), ended);
    }
  }

  // One output array of nodes.
  struct Spares {
    Handle* target = nullptr;    // The program's array.
    std::vector<Handle> minted;  // One for each element.
    std::vector<Handle> nodes;   // Travels over the wire in both directions.
  };

  const Row& row_;
  void* const* const program_;  // The arguments as they came.
  const Rules rules_;
  const Question* question_ = nullptr;  // The question being asked, which remembers the reply.
  EntryContext here_;
  int context_result_ = 0;  // The result of a call that needs a context.
  DeviceNumbers numbers_;
  std::array<void*, protocol::kParametersMax> arguments_{};
  std::array<std::uint64_t, protocol::kParametersMax> own_{};  // The arguments that we replaced.
  std::array<Handle, protocol::kParametersMax> minted_{};
  std::size_t minted_count_ = 0;
  std::vector<Spares> spares_;  // Nearly always empty.
};

}  // namespace

int run_generated(const Row& row, void* const* arguments, Rules rules) {
  if (row.parameters.size() > protocol::kParametersMax) return CUDA_ERROR_NOT_SUPPORTED;
  return GeneratedCall(row, arguments, rules).run();
}

}  // namespace gpurun::client::interpose
