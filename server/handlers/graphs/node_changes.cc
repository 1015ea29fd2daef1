// Node changes: the copy and the host node of a request, in a graph or an executable.
#include "server/handlers/graphs/node_changes.h"

#include <spdlog/spdlog.h>

#include <cstddef>

#include "server/worker/execution/host_memory.h"

namespace gpurun::server {
namespace {

using protocol::GraphWork;
using HostNode = GraphTopology::HostNode;

// In the graph itself if `exec` is nullptr.
int set_copy(WantedNode& wanted, CUgraphExec exec, CUgraphNode node) {
  const CUDA_MEMCPY3D copy = wanted.copy();
  if (exec == nullptr) {
    return GPURUN_DRIVER(wanted.driver, cuGraphMemcpyNodeSetParams, node, &copy);
  }
  CUcontext context = static_cast<CUcontext>(wanted.call.driver_context());
  return GPURUN_DRIVER(wanted.driver, cuGraphExecMemcpyNodeSetParams, exec, node, &copy, context);
}

// The copy comes first, because the driver may well refuse it. It hardly refuses a host node of
// ours.
int set_both(WantedNode& wanted, CUgraphExec exec, const HostNode& own, bool* half_set) {
  int result = wanted.is_copy() ? set_copy(wanted, exec, own.copy()) : 0;
  if (result != 0) return result;
  const CUDA_HOST_NODE_PARAMS host = wanted.host();
  result =
      exec == nullptr
          ? GPURUN_DRIVER(wanted.driver, cuGraphHostNodeSetParams, own.host(), &host)
          : GPURUN_DRIVER(wanted.driver, cuGraphExecHostNodeSetParams, exec, own.host(), &host);
  *half_set = result != 0 && wanted.is_copy();
  return result;
}

// If the driver refuses, the graph stays as it was.
int set_in_graph(WantedNode& wanted, HostNode own) {
  CUDA_MEMCPY3D before{};
  int result = 0;
  if (wanted.is_copy()) {
    result = GPURUN_DRIVER(wanted.driver, cuGraphMemcpyNodeGetParams, own.copy(), &before);
  }
  if (result == 0) result = wanted.make_operation();
  CUuserObject object = nullptr;
  if (result == 0) result = GraphHosts::give(wanted.driver, own.graph, wanted.operation, &object);
  if (result != 0) return result;
  bool half_set = false;
  result = set_both(wanted, nullptr, own, &half_set);
  CUuserObject ended = result == 0 ? own.object : object;
  if (half_set &&
      GPURUN_DRIVER(wanted.driver, cuGraphMemcpyNodeSetParams, own.copy(), &before) != 0) {
    spdlog::error(
        "a graph's copy could not be set back: it moves no bytes of the program any more");
    return result;  // The graph keeps the memory that it copies to.
  }
  (void)GPURUN_DRIVER(wanted.driver, cuGraphReleaseUserObject, own.graph, ended, 1u);
  if (result != 0) return result;
  own.object = object;
  wanted.topology.add(own);
  return 0;
}

int set_in_exec(WantedNode& wanted, CUgraphExec exec, const HostNode& own) {
  GraphExecs& execs = wanted.topology.execs();
  const int made = wanted.make_operation(
      execs.shadow_of(exec, own.exit, static_cast<std::size_t>(wanted.bytes())));
  if (made != 0) return made;
  bool half_set = false;
  const int result = set_both(wanted, exec, own, &half_set);
  if (result == 0) execs.set(exec, own.exit, wanted.operation);
  // The former copy of an executable cannot be queried.
  if (half_set) execs.set_half(exec, own.exit, wanted.operation, result);
  return result;
}

// A captured copy of memory that the device reaches is a node of the driver's alone, and stays one
// with other such memory. The client needs no operation then.
void settle_reached(WantedNode& wanted, CUgraphNode node) {
  const bool in = wanted.node.work == GraphWork::kCopyIn;
  if (!in && wanted.node.work != GraphWork::kCopyOut) return;
  if (!wanted.is_host(in ? wanted.node.source : wanted.node.destination)) return;
  // Another such node is the driver's half of a copy with a shadow, as in a child graph.
  CUDA_MEMCPY3D present{};
  if (GPURUN_DRIVER(wanted.driver, cuGraphMemcpyNodeGetParams, node, &present) != 0) return;
  const auto* const host = static_cast<const std::byte*>(in ? present.srcHost : present.dstHost);
  const CUmemorytype type = in ? present.srcMemoryType : present.dstMemoryType;
  const HostMemory* const memory = wanted.call.host_memory();
  if (type != CU_MEMORYTYPE_HOST || !memory->covers(reinterpret_cast<std::uintptr_t>(host), 1)) {
    return;
  }
  wanted.hosts.tell_gone(wanted.node.operation);
  wanted.node.work = GraphWork::kCopyDevice;
}

}  // namespace

int change_node(WantedNode& wanted) {
  const HandleTable::Found node =
      wanted.call.handles().find(wanted.node.node, HandleKind::kGraphNode);
  if (node.result != 0) return node.result;
  const auto of_driver = driver_object<CUgraphNode>(node.value);
  const auto own = wanted.topology.find(of_driver);
  if (!own.has_value()) settle_reached(wanted, of_driver);
  if (own.has_value() ? own->work != wanted.node.work : wanted.has_operation()) {
    // The copy would change direction, or the node is in a child graph or does not exist.
    const bool copy = own.has_value() && own->work != GraphWork::kFunction && wanted.is_copy();
    if (own.has_value() && !copy) return kErrorInvalidValue;
    spdlog::warn("a graph's copy cannot change its direction yet");
    return kErrorNotSupported;
  }
  if (wanted.node.graph == 0) {
    return own.has_value() ? set_in_graph(wanted, *own) : set_copy(wanted, nullptr, of_driver);
  }
  const HandleTable::Found exec =
      wanted.call.handles().find(wanted.node.graph, HandleKind::kGraphExec);
  if (exec.result != 0) return exec.result;
  const auto in_driver = driver_object<CUgraphExec>(exec.value);
  return own.has_value() ? set_in_exec(wanted, in_driver, *own)
                         : set_copy(wanted, in_driver, of_driver);
}

}  // namespace gpurun::server
