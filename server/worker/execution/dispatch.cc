// Dispatch: the generic path, which names no function.
#include "server/worker/execution/dispatch.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "driver_abi/opcodes.h"
#include "server/worker/execution/event_registry.h"
#include "server/worker/execution/executor.h"

namespace gpurun::server {
namespace {

using driver_abi::Direction;
using driver_abi::HandleKind;
using driver_abi::kNoParameter;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

bool holds_handles(const Parameter& parameter) {
  return parameter.shape == Shape::kHandle || parameter.shape == Shape::kHandlePointee ||
         parameter.shape == Shape::kHandleArray;
}

// Texture and surface objects and the like have the driver's own value on both sides.
bool crosses_unchanged(HandleKind kind) {
  return kind == HandleKind::kTextureObject || kind == HandleKind::kSurfaceObject ||
         kind == HandleKind::kGraphConditional;
}

// Translates the client's handles to the driver's, in place. Returns 0 or the CUresult.
int translate_inputs(const Row& row, protocol::UnpackedCall& call, const HandleTable& handles,
                     const Dispatch::Streams& streams) {
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    const Parameter& parameter = row.parameters[i];
    if (!holds_handles(parameter) || parameter.direction == Direction::kOut) continue;
    if (crosses_unchanged(parameter.handle)) continue;
    for (std::uint64_t& slot : call.handles(i)) {
      HandleTable::Found found;
      if (parameter.handle == HandleKind::kStream) {
        found = streams.resolve(streams.user, slot);
      } else if (slot != 0) {
        found = handles.find(slot, parameter.handle);
      }  // NULL stays NULL: the driver knows where it is allowed.
      if (found.result != 0) return found.result;
      slot = found.value;
    }
  }
  return 0;
}

// The handles with which the outputs of a call end. Nodes end with their graph, and a graph that a
// node's call returns is inside that node. 0: they end by themselves.
struct Owners {
  std::uint64_t of_nodes = 0;
  std::uint64_t of_graphs = 0;
  std::uint64_t of(HandleKind kind) const {
    if (kind == HandleKind::kGraphNode) return of_nodes;
    return kind == HandleKind::kGraph ? of_graphs : 0;
  }
};
// Before the inputs are translated.
Owners owners_of(const Row& row, const protocol::UnpackedCall& call, const HandleTable& handles) {
  std::uint64_t graph = 0, node = 0;
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    if (row.parameters[i].shape != Shape::kHandle) continue;
    if (graph == 0 && row.parameters[i].handle == HandleKind::kGraph) graph = call.word(i);
    if (node == 0 && row.parameters[i].handle == HandleKind::kGraphNode) node = call.word(i);
  }
  if (graph != 0) return {graph, 0};
  // The graph that contains a node does not end with that node.
  if (row.opcode == driver_abi::opcode::cuGraphNodeGetContainingGraph) {
    return {handles.owner_of(node), 0};
  }
  return node == 0 ? Owners() : Owners{handles.owner_of(node), node};
}

// Handles that the client minted for output nodes, by parameter, with the next one last. The places
// of the handles become 0.
using Spares = std::array<std::vector<std::uint64_t>, protocol::kParametersMax>;
void take_spares(const Row& row, protocol::UnpackedCall& call, Spares& spares) {
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    if (!protocol::holds_spares(row.parameters[i])) continue;
    const std::span<std::uint64_t> slots = call.handles(i);
    spares[i].assign(slots.rbegin(), slots.rend());
    std::fill(slots.begin(), slots.end(), 0);
  }
}

// Gives a node without a handle one of the client's. It is never NULL, because the program would
// take NULL for a node.
int announce(HandleKind kind, DriverValue value, std::vector<std::uint64_t>& spares,
             HandleTable& handles, const Owners& owners, std::uint64_t* slot) {
  if (spares.empty()) return kErrorNotSupported;
  *slot = spares.back();
  spares.pop_back();
  return handles.bind(*slot, kind, value, owners.of(kind));
}

// Translates the driver's output handles to the client's, in place. It uses the known handle if the
// driver returned a known object, else the handle that the client minted, which it binds.
int translate_outputs(const Row& row, protocol::UnpackedCall& call, HandleTable& handles,
                      const Owners& owners, Spares& spares) {
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    const Parameter& parameter = row.parameters[i];
    if (!holds_handles(parameter) || parameter.direction == Direction::kIn) continue;
    if (crosses_unchanged(parameter.handle)) continue;
    for (std::uint64_t& slot : call.handles(i)) {
      if (slot == 0) continue;
      const std::uint64_t value = slot;
      // Such a row has created its outputs. The driver may reuse a value with a former owner that
      // is still known, because that ended with a graph.
      if (row.completion == driver_abi::Completion::kAsync &&
          parameter.shape == Shape::kHandlePointee && call.minted(i) != 0) {
        slot = call.minted(i);
        const int result = handles.bind(slot, parameter.handle, value, owners.of(parameter.handle));
        if (result != 0) return result;
        continue;
      }
      slot = handles.client_handle_of(value, parameter.handle);
      if (slot != 0) {
        if (parameter.handle == HandleKind::kAllocation) handles.retain(slot);
        continue;
      }
      if (protocol::holds_spares(parameter)) {
        const int result = announce(parameter.handle, value, spares[i], handles, owners, &slot);
        if (result != 0) return result;
      }
      if (parameter.shape != Shape::kHandlePointee) continue;
      slot = call.minted(i);
      if (slot == 0) return kErrorInvalidHandle;
      const int result = handles.bind(slot, parameter.handle, value, owners.of(parameter.handle));
      if (result != 0) return result;
    }
  }
  return 0;
}

// A client that waits for its call takes its minted handles back.
void poison_minted(const Row& row, const protocol::UnpackedCall& unpacked, const Owners& owners,
                   Call& call, int result) {
  if (call.awaited()) return;
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    if (unpacked.minted(i) == 0) continue;
    const HandleKind kind = row.parameters[i].handle;
    (void)call.handles().poison(unpacked.minted(i), kind, result, owners.of(kind));
  }
}

// The handle that the client learns of when the call fails: the first one that it minted.
void note_created(const Row& row, const protocol::UnpackedCall& unpacked, Call& call) {
  for (std::size_t i = row.parameters.size(); i-- > 0;) {
    if (unpacked.minted(i) != 0) call.set_created(unpacked.minted(i));
  }
}

}  // namespace

Result<std::unique_ptr<Dispatch>> Dispatch::create(const CudaDriver& driver) {
  std::unique_ptr<Dispatch> dispatch(new Dispatch(driver));
  for (const Row& row : driver_abi::rows()) {
    if (dispatch->calls_.size() <= row.opcode) dispatch->calls_.resize(row.opcode + std::size_t{1});
    Result<std::unique_ptr<ForeignCall>> call = ForeignCall::prepare(row);
    if (call.ok()) {
      dispatch->calls_[row.opcode] = std::move(*call);
      continue;
    }
    const bool must_work = row.implementation == driver_abi::Implementation::kGenerated &&
                           row.completion != driver_abi::Completion::kRefused;
    if (must_work) return call.status();
  }
  return dispatch;
}

void Dispatch::substitute(std::uint16_t opcode, void* function) { substitutes_[opcode] = function; }

int Dispatch::issue(const Row& row, protocol::UnpackedCall& unpacked, HandleTable& handles,
                    const Streams& streams) const {
  const ForeignCall* foreign = row.opcode < calls_.size() ? calls_[row.opcode].get() : nullptr;
  void* function = driver_.function(row.opcode);
  const auto other = substitutes_.find(row.opcode);
  if (function != nullptr && other != substitutes_.end()) function = other->second;
  int result = foreign == nullptr || function == nullptr ? kErrorNotSupported : 0;
  // The handle is forgotten only once the driver has ended its object.
  std::uint64_t ended = 0;
  if (result == 0 && row.destroyed_parameter != kNoParameter) {
    const auto slots = unpacked.handles(row.destroyed_parameter);
    if (!slots.empty()) ended = slots.front();
  }
  if (ended != 0 &&
      handles.forget_poisoned(ended, row.parameters[row.destroyed_parameter].handle)) {
    return 0;
  }
  Spares spares;
  take_spares(row, unpacked, spares);
  const Owners owners = owners_of(row, unpacked, handles);
  if (result == 0) result = translate_inputs(row, unpacked, handles, streams);
  if (result == 0) result = foreign->invoke(function, unpacked.arguments());
  if (result == 0) result = translate_outputs(row, unpacked, handles, owners, spares);
  if (result != 0) return result;
  if (ended != 0) {
    handles.release(ended, row.parameters[row.destroyed_parameter].handle);
  }
  return 0;
}

void Dispatch::refuse(Call& call, int result) {
  const Row* row = driver_abi::find_row(call.header().opcode);
  protocol::UnpackedCall unpacked;
  if (row == nullptr || call.header().form != protocol::Form::kCall || call.awaited() ||
      !unpacked.unpack(*row, call.payload()).ok()) {
    return;
  }
  note_created(*row, unpacked, call);
  poison_minted(*row, unpacked, owners_of(*row, unpacked, call.handles()), call, result);
}

CallOutcome Dispatch::run(Call& call, const Around& around) const {
  const Row* row = driver_abi::find_row(call.header().opcode);
  if (row == nullptr) return CallOutcome::done(kErrorNotSupported);
  thread_local protocol::UnpackedCall unpacked;  // Keeps its capacity from call to call.
  const Status status = unpacked.unpack(*row, call.payload());
  if (!status.ok()) return CallOutcome::done(kErrorInvalidValue);
  const Streams streams{[](void* user, std::uint64_t client_stream) {
                          return static_cast<Call*>(user)->resolve_stream(client_stream);
                        },
                        &call};
  note_created(*row, unpacked, call);
  const bool ends_handle = row->destroyed_parameter != kNoParameter;
  const HandleKind ends =
      ends_handle ? row->parameters[row->destroyed_parameter].handle : HandleKind::kNone;
  const std::uint64_t ended = ends_handle ? unpacked.word(row->destroyed_parameter) : 0;
  const std::uint64_t ended_value =
      ends == HandleKind::kContext ? call.handles().find(ended, ends).value : 0;
  const Owners owners = owners_of(*row, unpacked, call.handles());
  int result = around.before != nullptr ? around.before(call, unpacked) : 0;
  if (result == 0) result = issue(*row, unpacked, call.handles(), streams);
  if (result != 0) poison_minted(*row, unpacked, owners, call, result);
  if (result == 0 && around.after != nullptr) result = around.after(call, unpacked);
  if (result == 0 && ends == HandleKind::kEvent) call.executor().events().forget(ended);
  if (result == 0 && ends == HandleKind::kContext) {
    call.executor().context_ended(ended, ended_value);
  }
  if (call.awaited() && result == 0) {
    thread_local protocol::PackedReply reply;
    if (!reply.pack(*row, unpacked, result).ok()) {
      result = kErrorInvalidValue;
    } else {
      call.set_reply(reply.bytes());
    }
  }
  return CallOutcome::done(result);
}

}  // namespace gpurun::server
