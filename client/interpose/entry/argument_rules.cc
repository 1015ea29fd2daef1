// Argument rules: checks of enumerations, flags, alignments, and the memory behind addresses.
#include "client/interpose/entry/argument_rules.h"

#include <climits>
#include <cstring>

#include "client/interpose/capture/graph_nodes.h"
#include "client/interpose/memory/graph_memory.h"
#include "client/interpose/memory/host_arena.h"
#include "client/interpose/memory/memory_ranges.h"
#include "driver_abi/semantics/function_settings.h"
#include "driver_abi/semantics/launch_attributes.h"
#include "driver_abi/semantics/object_flags.h"
#include "driver_abi/semantics/planes.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

template <typename T>
T argument(void* const* arguments, std::size_t index) {
  T value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

Sound sound_if(bool sound) { return sound ? Sound::kRight : Sound::kWrong; }

// [address, address + bytes) is device memory that the program holds.
Sound check_memory(const EntryContext& here, std::uint64_t address, std::uint64_t bytes) {
  const auto range = find_device_range(here, address);
  if (range.has_value() && range->on_host() && !range->reached) return Sound::kUnknown;
  if (range.has_value() && !range->is_sure()) {
    return may_be_posted(here, *range) ? Sound::kRight : Sound::kUnknown;
  }
  if (range.has_value()) return sound_if(range->covers(address, bytes));
  return device_of_window(address) >= 0 ? Sound::kWrong : Sound::kUnknown;
}

// cuMemsetD2D*: destination, pitch, value, width in elements, height.
Sound check_plane(const EntryContext& here, void* const* arguments, std::uint64_t element_bytes) {
  const driver_abi::PlaneFill fill{
      argument<std::uint64_t>(arguments, 0), argument<std::uint64_t>(arguments, 1), element_bytes,
      argument<std::uint64_t>(arguments, 3), argument<std::uint64_t>(arguments, 4)};
  if (fill.width == 0 || fill.height == 0) return Sound::kRight;
  const auto bytes = driver_abi::span_of(fill);
  return bytes ? check_memory(here, fill.address, *bytes) : Sound::kWrong;
}

// Stream memory operations: stream, address, value, flags.
Sound check_value(const EntryContext& here, void* const* arguments, std::uint64_t bytes,
                  unsigned flags_known) {
  const auto address = argument<std::uint64_t>(arguments, 1);
  if ((argument<unsigned>(arguments, 3) & ~flags_known) != 0 || address % bytes != 0) {
    return Sound::kWrong;
  }
  return check_memory(here, address, bytes);
}

// Checks a copy between devices. For pinned host memory the driver decides, and a synchronous copy
// waits for it.
Sound check_peer_copy(const EntryContext& here, void* const* arguments, bool synchronous) {
  const auto bytes = argument<std::uint64_t>(arguments, 4);
  Sound worst = Sound::kRight;
  for (const std::size_t side : {std::size_t{0}, std::size_t{2}}) {
    const auto address = argument<std::uint64_t>(arguments, side);
    const Sound found = check_memory(here, address, bytes);
    if (found == Sound::kWrong) return found;
    const auto range = find_range(address);
    const bool waits = synchronous && range.has_value() && range->reached;
    if (found == Sound::kUnknown || waits) worst = Sound::kUnknown;
  }
  return bytes == 0 ? Sound::kRight : worst;
}

// A wait or write of a kind that every driver takes. Others are left to the worker's driver.
bool is_plain_operation(const EntryContext& here, const CUstreamBatchMemOpParams& operation) {
  const bool wide = operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                    operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  const bool writes = operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                      operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  const std::uint64_t bytes = wide ? 8 : 4;
  const std::uint64_t address = operation.waitValue.address;
  const unsigned flags = operation.waitValue.flags;
  return address % bytes == 0 && flags <= (writes ? 0u : 3u) &&
         check_memory(here, address, bytes) == Sound::kRight;
}

Sound check_stream_attribute(void* const* arguments) {
  const auto rule = driver_abi::launch_attribute(argument<std::uint32_t>(arguments, 1));
  return rule.stream == driver_abi::StreamAttributeUse::kEveryDriver ? Sound::kRight
                                                                     : Sound::kUnknown;
}

// The worker refuses the others with the same code.
Sound check_node_attribute(void* const* arguments) {
  const int result = driver_abi::check_node_attribute(argument<std::uint32_t>(arguments, 1));
  if (result == CUDA_ERROR_NOT_SUPPORTED) return Sound::kUnknown;
  return sound_if(result == CUDA_SUCCESS);
}

// Manual, cuUserObjectRetain: "Must be nonzero and not larger than INT_MAX".
Sound check_references(void* const* arguments, std::size_t index) {
  const auto count = argument<unsigned>(arguments, index);
  return sound_if(count != 0 && count <= INT_MAX);
}

// The parameters of a node that fills memory.
Sound check_fill(const EntryContext& here, const CUDA_MEMSET_NODE_PARAMS* what) {
  if (what == nullptr) return Sound::kWrong;
  const auto fill = driver_abi::fill_of(*what);
  const auto bytes = fill ? driver_abi::span_of(*fill) : std::nullopt;
  return bytes ? check_memory(here, fill->address, *bytes) : Sound::kWrong;
}

Sound worse(Sound one, Sound other) {
  if (one == Sound::kWrong || other == Sound::kWrong) return Sound::kWrong;
  return one == Sound::kUnknown ? one : other;
}

// cuGraphAdd*Node: node, graph, dependencies, count.
Sound check_new_node(const EntryContext& here, void* const* arguments) {
  const auto* list = argument<const Handle*>(arguments, 2);
  const auto count = argument<std::size_t>(arguments, 3);
  if (list == nullptr) return sound_if(count == 0);
  if (count > limits::kArrayCountMax) return Sound::kWrong;
  return check_dependencies(here.handles(), argument<Handle>(arguments, 1), {list, count});
}

// A graph with nodes that allocate or free memory cannot be cloned, cannot be a child, and keeps
// its nodes (manual, cuGraphAddMemAllocNode). The client does not know which graphs have such
// nodes.
Sound check_graph_without_memory() {
  return graph_memory_exists() ? Sound::kUnknown : Sound::kRight;
}

// The same for conditional nodes, which may be destroyed.
Sound check_cloneable_graph() {
  return conditional_nodes_exist() ? Sound::kUnknown : check_graph_without_memory();
}

// cuGraphAddDependencies: graph, from, to, edges, count. A node cannot come before itself.
Sound check_edges(void* const* arguments) {
  const auto* from = argument<const CUgraphNode*>(arguments, 1);
  const auto* to = argument<const CUgraphNode*>(arguments, 2);
  const auto count = argument<std::size_t>(arguments, 4);
  if (from == nullptr || to == nullptr) return sound_if(count == 0);
  if (count > limits::kArrayCountMax) return Sound::kWrong;
  for (std::size_t i = 0; i < count; ++i) {
    if (from[i] == to[i]) return Sound::kWrong;
  }
  return Sound::kRight;
}

// A graph that has moved into a node cannot be destroyed by itself or added once more (cuda.h,
// CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE). Other calls that may not use it wait for the driver.
bool misuses_moved_graph(const EntryContext& here, std::uint16_t row, void* const* arguments) {
  const auto moved = [&](std::size_t index) {
    return is_moved(here.handles(), argument<Handle>(arguments, index));
  };
  switch (row) {
    case opcode::cuGraphDestroy:
      return moved(0);
    case opcode::cuGraphAddChildGraphNode:
      return moved(4);
    default:
      return false;
  }
}

}  // namespace

Sound check_memory_operations(const EntryContext& here, const CUstreamBatchMemOpParams* list,
                              unsigned count, unsigned flags) {
  if (count > driver_abi::kStreamMemoryOperationsMax || flags != 0) return Sound::kWrong;
  if (count != 0 && list == nullptr) return Sound::kWrong;
  for (unsigned i = 0; i < count; ++i) {
    switch (list[i].operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        if (!is_plain_operation(here, list[i])) return Sound::kUnknown;
        break;
      case CU_STREAM_MEM_OP_BARRIER:
        break;
      default:
        return Sound::kUnknown;  // Operations of later versions, and unknown ones.
    }
  }
  return Sound::kRight;
}

Sound check_arguments(const EntryContext& here, const driver_abi::Row& row,
                      void* const* arguments) {
  if (misuses_moved_graph(here, row.alias_opcode, arguments)) return Sound::kWrong;
  switch (row.alias_opcode) {
    case opcode::cuCtxSetCacheConfig:
      return sound_if(driver_abi::is_cache_config(argument<CUfunc_cache>(arguments, 0)));
    case opcode::cuFuncSetCacheConfig:
    case opcode::cuKernelSetCacheConfig:
      return sound_if(driver_abi::is_cache_config(argument<CUfunc_cache>(arguments, 1)));
    case opcode::cuCtxSetSharedMemConfig:
      return sound_if(driver_abi::is_shared_config(argument<CUsharedconfig>(arguments, 0)));
    case opcode::cuFuncSetSharedMemConfig:
      return sound_if(driver_abi::is_shared_config(argument<CUsharedconfig>(arguments, 1)));
    case opcode::cuMemsetD2D8_v2:
    case opcode::cuMemsetD2D8Async:
      return check_plane(here, arguments, 1);
    case opcode::cuMemsetD2D16_v2:
    case opcode::cuMemsetD2D16Async:
      return check_plane(here, arguments, 2);
    case opcode::cuMemsetD2D32_v2:
    case opcode::cuMemsetD2D32Async:
      return check_plane(here, arguments, 4);
    case opcode::cuStreamWaitValue32_v2:
      return check_value(here, arguments, 4, driver_abi::kWaitValueFlags);
    case opcode::cuStreamWaitValue64_v2:
      return check_value(here, arguments, 8, driver_abi::kWaitValueFlags);
    case opcode::cuStreamWriteValue32_v2:
      return check_value(here, arguments, 4, driver_abi::kWriteValueFlags);
    case opcode::cuStreamWriteValue64_v2:
      return check_value(here, arguments, 8, driver_abi::kWriteValueFlags);
    case opcode::cuStreamBatchMemOp_v2:
      return check_memory_operations(here, argument<const CUstreamBatchMemOpParams*>(arguments, 2),
                                     argument<unsigned>(arguments, 1),
                                     argument<unsigned>(arguments, 3));
    case opcode::cuStreamSetAttribute:
      return check_stream_attribute(arguments);
    case opcode::cuMemAdvise:
    case opcode::cuMemAdvise_v2:
    case opcode::cuMemPrefetchAsync:
    case opcode::cuMemPrefetchAsync_v2:
    case opcode::cuMemPrefetchBatchAsync:
    case opcode::cuMemDiscardBatchAsync:
    case opcode::cuMemDiscardAndPrefetchBatchAsync:
      return Sound::kUnknown;  // It is not managed, so the driver decides.
    case opcode::cuStreamAttachMemAsync:
      return Sound::kWrong;  // It is not managed: see managed_answers.h.
    case opcode::cuMemcpyPeer:
    case opcode::cuMemcpyPeerAsync:
      return check_peer_copy(here, arguments, row.alias_opcode == opcode::cuMemcpyPeer);
    case opcode::cuGraphCreate:
      return sound_if(argument<unsigned>(arguments, 1) == 0);
    case opcode::cuGraphAddMemFreeNode:
      return Sound::kUnknown;  // The driver knows what the graph allocates.
    case opcode::cuGraphClone:
      return check_cloneable_graph();
    case opcode::cuGraphDestroyNode:
      return check_graph_without_memory();
    case opcode::cuGraphAddChildGraphNode:
      return worse(check_cloneable_graph(), check_new_node(here, arguments));
    case opcode::cuGraphAddEmptyNode:
    case opcode::cuGraphAddEventRecordNode:
    case opcode::cuGraphAddEventWaitNode:
      return check_new_node(here, arguments);
    case opcode::cuGraphAddMemsetNode:
      return worse(check_fill(here, argument<const CUDA_MEMSET_NODE_PARAMS*>(arguments, 4)),
                   check_new_node(here, arguments));
    case opcode::cuGraphExecMemsetNodeSetParams:
      return check_fill(here, argument<const CUDA_MEMSET_NODE_PARAMS*>(arguments, 2));
    case opcode::cuGraphMemsetNodeSetParams:
      return check_fill(here, argument<const CUDA_MEMSET_NODE_PARAMS*>(arguments, 1));
    case opcode::cuGraphAddDependencies_v2:
      return check_edges(arguments);
    case opcode::cuGraphKernelNodeGetAttribute:
    case opcode::cuGraphKernelNodeSetAttribute:
      return check_node_attribute(arguments);
    case opcode::cuUserObjectRetain:
    case opcode::cuUserObjectRelease:
      return check_references(arguments, 1);
    case opcode::cuGraphReleaseUserObject:
      return check_references(arguments, 2);
    case opcode::cuGraphRetainUserObject:
      return worse(check_references(arguments, 2),
                   sound_if(argument<unsigned>(arguments, 3) <= CU_GRAPH_USER_OBJECT_MOVE));
    default:
      return Sound::kRight;
  }
}

}  // namespace gpurun::client::interpose
