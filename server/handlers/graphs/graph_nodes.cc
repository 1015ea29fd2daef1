// Graph nodes: kernel nodes of graphs. The parameter block comes packed, as with a launch.
#include <cstring>
#include <vector>

#include "protocol/calls/module_calls.h"
#include "server/handlers/graphs/driver_nodes.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/modules/modules.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using protocol::KernelNode;

// A node in the driver's form. Not copied, because it points into itself.
struct DriverNode {
  CUDA_KERNEL_NODE_PARAMS parameters{};
  std::size_t block_bytes = 0;
  void* extra[5] = {};
  std::vector<CUgraphNode> dependencies;

  int read(Call& call, KernelNode& node) {
    const protocol::LaunchPayload& launch = node.launch;
    DriverKernel kernel{HandleKind::kFunction, nullptr};
    HandleTable::Found found = call.handles().find(launch.function, kernel.kind);
    if (found.result == 0) {
      parameters.func = driver_object<CUfunction>(found.value);
    } else if (found.result == kErrorInvalidHandle) {
      kernel.kind = HandleKind::kKernel;
      found = call.handles().find(launch.function, kernel.kind);
      parameters.kern = driver_object<CUkernel>(found.value);
    }
    if (found.result != 0) return found.result;
    kernel.value = driver_object<void*>(found.value);
    if (const int result = check_layout(call, launch, kernel); result != 0) return result;
    parameters.gridDimX = launch.grid[0];
    parameters.gridDimY = launch.grid[1];
    parameters.gridDimZ = launch.grid[2];
    parameters.blockDimX = launch.block[0];
    parameters.blockDimY = launch.block[1];
    parameters.blockDimZ = launch.block[2];
    parameters.sharedMemBytes = launch.shared_bytes;
    if (node.context != 0) {
      found = call.handles().find(node.context, HandleKind::kContext);
      if (found.result != 0) return found.result;
      parameters.ctx = driver_object<CUcontext>(found.value);
    }
    if (!node.block.empty()) {
      block_bytes = node.block.size();
      // CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END (cuda.h). The driver copies the block.
      extra[0] = reinterpret_cast<void*>(std::uintptr_t{1});
      extra[1] = node.block.data();
      extra[2] = reinterpret_cast<void*>(std::uintptr_t{2});
      extra[3] = &block_bytes;
      parameters.extra = extra;
    }
    const std::vector<std::uint64_t>& handles = node.dependencies;
    return find_nodes(call, byte_view(handles.data(), handles.size() * sizeof handles[0]),
                      &dependencies);
  }
};

int add_node(Call& call, KernelNode& node) {
  CUgraph graph = nullptr;
  int result = find_graph(call, node.graph, &graph);
  if (result != 0) return result;
  DriverNode driver_node;
  result = driver_node.read(call, node);
  if (result != 0) return result;
  CUgraphNode added = nullptr;
  result = GPURUN_DRIVER(HandlerState::of(call).driver(), cuGraphAddKernelNode_v2, &added, graph,
                         driver_node.dependencies.data(), driver_node.dependencies.size(),
                         &driver_node.parameters);
  if (result != 0) return result;
  return call.handles().bind(node.node, HandleKind::kGraphNode,
                             reinterpret_cast<std::uintptr_t>(added), node.graph);
}

int set_node(Call& call, KernelNode& node) {
  const HandleTable::Found found = call.handles().find(node.node, HandleKind::kGraphNode);
  if (found.result != 0) return found.result;
  DriverNode driver_node;
  if (const int result = driver_node.read(call, node); result != 0) return result;
  const CudaDriver& driver = HandlerState::of(call).driver();
  if (node.graph == 0) {
    return GPURUN_DRIVER(driver, cuGraphKernelNodeSetParams_v2,
                         driver_object<CUgraphNode>(found.value), &driver_node.parameters);
  }
  const HandleTable::Found exec = call.handles().find(node.graph, HandleKind::kGraphExec);
  if (exec.result != 0) return exec.result;
  return GPURUN_DRIVER(driver, cuGraphExecKernelNodeSetParams_v2,
                       driver_object<CUgraphExec>(exec.value),
                       driver_object<CUgraphNode>(found.value), &driver_node.parameters);
}

CallOutcome run_add(Call& call) {
  Result<KernelNode> node = protocol::unpack_kernel_node(call.payload());
  if (!node.ok()) return CallOutcome::done(kErrorInvalidValue);
  const int result = add_node(call, *node);
  // The program has the node already, so its use reports the failure.
  call.set_created(node->node);
  if (result != 0 && !call.awaited()) {
    (void)call.handles().poison(node->node, HandleKind::kGraphNode, result, node->graph);
  }
  return CallOutcome::done(result);
}

CallOutcome run_set(Call& call) {
  // The client waits until earlier changes of the executable are made.
  if (call.payload().empty()) return CallOutcome::done(0);
  Result<KernelNode> node = protocol::unpack_kernel_node(call.payload());
  return CallOutcome::done(node.ok() ? set_node(call, *node) : kErrorInvalidValue);
}

}  // namespace

void add_graph_node_handlers(Handlers& handlers) {
  set_handler(handlers, "cuGraphAddKernelNode_v2", &run_add);
  set_handler(handlers, "cuGraphKernelNodeSetParams_v2", &run_set);
  set_handler(handlers, "cuGraphExecKernelNodeSetParams_v2", &run_set);
}

}  // namespace gpurun::server
