// Node additions: a host node of the driver runs the client's work. A copy from or to the client is
// a host node and a copy node.
#include "server/handlers/graphs/node_additions.h"

#include <vector>

namespace gpurun::server {
namespace {

using protocol::GraphWork;
using HostNode = GraphTopology::HostNode;

int add_host(WantedNode& wanted, CUgraph graph, const std::vector<CUgraphNode>& behind,
             CUgraphNode* made) {
  const CUDA_HOST_NODE_PARAMS host = wanted.host();
  return GPURUN_DRIVER(wanted.driver, cuGraphAddHostNode, made, graph, behind.data(), behind.size(),
                       &host);
}

int add_copy(WantedNode& wanted, CUgraph graph, const std::vector<CUgraphNode>& behind,
             CUgraphNode* made) {
  const CUDA_MEMCPY3D copy = wanted.copy();
  CUcontext context = static_cast<CUcontext>(wanted.call.driver_context());
  return GPURUN_DRIVER(wanted.driver, cuGraphAddMemcpyNode, made, graph, behind.data(),
                       behind.size(), &copy, context);
}

// A node of the refused operation stays in the graph. It does nothing, and finds the operation as
// long as it can run.
void keep_refused(WantedNode& wanted, CUgraph graph) {
  wanted.operation->refused.store(true, std::memory_order_release);
  CUuserObject object = nullptr;
  if (GraphHosts::give(wanted.driver, graph, wanted.operation, &object) == 0) return;
  static_cast<void>(new GraphHosts::OperationPtr(wanted.operation));  // As long as the process.
}

// Adds both nodes, or none. `*left`: one stays, because the driver does not destroy it. The nodes
// of a graph that allocates memory stay (manual, cuGraphAddMemAllocNode).
int add_nodes(WantedNode& wanted, CUgraph graph, HostNode* made, bool* left) {
  const auto first =
      wanted.node.work == GraphWork::kFunction || wanted.node.work == GraphWork::kCopyIn
          ? &add_host
          : &add_copy;
  int result = first(wanted, graph, wanted.dependencies, &made->entry);
  if (result != 0) return result;
  made->exit = made->entry;
  if (wanted.node.work == GraphWork::kFunction || wanted.node.work == GraphWork::kCopyDevice) {
    return 0;
  }
  const auto second = first == &add_host ? &add_copy : &add_host;
  result = second(wanted, graph, {made->entry}, &made->exit);
  if (result != 0) {
    *left = GPURUN_DRIVER(wanted.driver, cuGraphDestroyNode, made->entry) != 0;
  }
  return result;
}

int capture_host(WantedNode& wanted) {
  return GPURUN_DRIVER(wanted.driver, cuLaunchHostFunc, wanted.stream(), &GraphHosts::run,
                       wanted.operation.get());
}

int capture_copy(WantedNode& wanted) {
  const CUDA_MEMCPY3D copy = wanted.copy();
  return GPURUN_DRIVER(wanted.driver, cuMemcpy3DAsync_v2, &copy, wanted.stream());
}

}  // namespace

int add_node(WantedNode& wanted) {
  const HandleTable::Found graph =
      wanted.call.handles().find(wanted.node.graph, HandleKind::kGraph);
  if (graph.result != 0) return graph.result;
  HostNode made;
  made.graph = driver_object<CUgraph>(graph.value);
  made.work = wanted.node.work;
  made.copies = wanted.node.width != 0;
  made.context = static_cast<CUcontext>(wanted.call.driver_context());
  int result = wanted.make_operation();
  if (result != 0) return result;
  bool left = false;
  result = add_nodes(wanted, made.graph, &made, &left);
  if (result == 0 && wanted.has_operation()) {
    result = GraphHosts::give(wanted.driver, made.graph, wanted.operation, &made.object);
    if (result != 0) {
      left = GPURUN_DRIVER(wanted.driver, cuGraphDestroyNode, made.exit) != 0;
      if (made.entry != made.exit) {
        left |= GPURUN_DRIVER(wanted.driver, cuGraphDestroyNode, made.entry) != 0;
      }
    }
  }
  if (result != 0) {
    if (left && wanted.has_operation()) keep_refused(wanted, made.graph);
    return result;
  }
  if (wanted.has_operation()) wanted.topology.add(made);
  return wanted.call.handles().bind(wanted.node.node, HandleKind::kGraphNode,
                                    reinterpret_cast<std::uintptr_t>(made.exit), wanted.node.graph);
}

int capture_node(WantedNode& wanted) {
  HostNode made;
  made.work = wanted.node.work;
  made.copies = wanted.node.width != 0;
  made.context = static_cast<CUcontext>(wanted.call.driver_context());
  const auto look = [&](CUgraphNode* last) {
    return look_at_capture(wanted.driver, wanted.stream(), &made.graph, last);
  };
  int result = look(&made.entry);
  if (result == 0) result = wanted.make_operation();
  if (result != 0) return result;
  // The operation comes first, because a capture cannot be undone.
  if (wanted.has_operation()) {
    result = GraphHosts::give(wanted.driver, made.graph, wanted.operation, &made.object);
    if (result != 0) return result;
  }
  const bool host_first = made.work == GraphWork::kFunction || made.work == GraphWork::kCopyIn;
  result = host_first ? capture_host(wanted) : capture_copy(wanted);
  if (result == 0) result = look(&made.entry);
  made.exit = made.entry;
  if (result == 0 && (made.work == GraphWork::kCopyIn || made.work == GraphWork::kCopyOut)) {
    result = host_first ? capture_copy(wanted) : capture_host(wanted);
    if (result == 0) result = look(&made.exit);
  }
  if (result == 0 && made.exit != nullptr && wanted.has_operation()) wanted.topology.add(made);
  return result;
}

}  // namespace gpurun::server
