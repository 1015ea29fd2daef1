// Parameters of graph nodes: queries, and replacement in graphs and executables.
#include <cstring>

#include "emulated/api.h"
#include "emulated/api/graph_nodes.h"
#include "emulated/objects/copy.h"
#include "emulated/objects/graph_exec.h"
#include "emulated/objects/host_operation.h"
#include "emulated/objects/launch.h"

namespace gpurun::emulated {
namespace {

// The operation of a node, as the type that it must have. INVALID_VALUE: the node is of another
// type.
template <typename Kind>
CUresult read_node(CUgraphNode handle, GraphNodePtr* node, std::shared_ptr<const Kind>* operation) {
  GPURUN_ENTER_DRIVER();
  *node = handles().find<GraphNode>(handle);
  if (*node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *operation = std::dynamic_pointer_cast<const Kind>((*node)->operation());
  return *operation == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

CUresult replace_operation(CUgraphNode handle, OperationPtr operation) {
  const auto node = handles().find<GraphNode>(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (node->operation()->graph_node_type() != operation->graph_node_type()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  node->set_operation(std::move(operation));
  return CUDA_SUCCESS;
}

CUresult replace_operation(CUgraphExec exec_handle, CUgraphNode node, OperationPtr operation) {
  const auto exec = handles().find<GraphExec>(exec_handle);
  // "hNode must not have been removed from the original graph" (manual, cuGraphExec...SetParams).
  if (exec == nullptr || handles().find<GraphNode>(node) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return exec->set_operation(reinterpret_cast<std::uintptr_t>(node), std::move(operation))
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

namespace {

// Both sides as unified addresses, which tell where they are.
CUDA_MEMCPY3D describe(const CopyBox& box) {
  CUDA_MEMCPY3D copy{};
  const auto rows = [](const BoxSide& side) {
    return side.row_pitch == 0 ? 0 : side.slice_pitch / side.row_pitch;
  };
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = box.source.address;
  copy.srcPitch = box.source.row_pitch;
  copy.srcHeight = rows(box.source);
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = box.destination.address;
  copy.dstPitch = box.destination.row_pitch;
  copy.dstHeight = rows(box.destination);
  copy.WidthInBytes = box.width_bytes;
  copy.Height = box.height;
  copy.Depth = box.depth;
  return copy;
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* out) {
  GraphNodePtr node;
  std::shared_ptr<const LaunchOperation> operation;
  GPURUN_TRY(read_node(handle, &node, &operation));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const KernelLaunch& launch = operation->launch();
  *out = CUDA_KERNEL_NODE_PARAMS{};
  out->func = launch.function->as<CUfunction>();
  // The runtime finds the program's own name of a kernel by `kern` (cudaGraphKernelNodeGetParams,
  // as in cudart 13.0). Without it, the runtime returns cudaErrorInvalidDeviceFunction.
  if (const std::uint64_t kernel = launch.function->kernel(); kernel != 0) {
    out->kern = reinterpret_cast<CUkernel>(kernel);
    out->ctx = launch.module->context()->as<CUcontext>();
  }
  out->gridDimX = launch.grid.x, out->gridDimY = launch.grid.y, out->gridDimZ = launch.grid.z;
  out->blockDimX = launch.block.x, out->blockDimY = launch.block.y;
  out->blockDimZ = launch.block.z;
  out->sharedMemBytes = launch.dynamic_shared_bytes;
  // Valid until the node's parameters change (manual, cuGraphKernelNodeGetParams).
  out->kernelParams = operation->parameter_pointers();
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* in) {
  GPURUN_ENTER_DRIVER();
  if (in == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OperationPtr operation;
  GPURUN_TRY(make_kernel(*in, &operation));
  return replace_operation(node, std::move(operation));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* in) {
  GPURUN_ENTER_DRIVER();
  if (in == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OperationPtr operation;
  GPURUN_TRY(make_kernel(*in, &operation));
  return replace_operation(exec, node, std::move(operation));
}

// The structures of CUDA 11 lack the two members of cuGraphAddKernelNode_v2's.
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
  CUDA_KERNEL_NODE_PARAMS read{};
  GPURUN_TRY(api::cuGraphKernelNodeGetParams_v2(node, out == nullptr ? nullptr : &read));
  std::memcpy(out, &read, sizeof *out);
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* in) {
  GPURUN_ENTER_DRIVER();
  if (in == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS parameters = newer(*in);
  return api::cuGraphKernelNodeSetParams_v2(node, &parameters);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* in) {
  GPURUN_ENTER_DRIVER();
  if (in == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS parameters = newer(*in);
  return api::cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* out) {
  GraphNodePtr node;
  std::shared_ptr<const CopyOperation> operation;
  GPURUN_TRY(read_node(handle, &node, &operation));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = operation->described() != nullptr ? *operation->described() : describe(operation->box());
  return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* in) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_copy(in, &operation));
  return replace_operation(node, std::move(operation));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* in,
                                        CUcontext) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_copy(in, &operation));
  return replace_operation(exec, node, std::move(operation));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* out) {
  GraphNodePtr node;
  std::shared_ptr<const FillOperation> operation;
  GPURUN_TRY(read_node(handle, &node, &operation));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Fill& what = operation->what();
  *out = CUDA_MEMSET_NODE_PARAMS{};
  out->dst = what.address;
  out->pitch = what.row_pitch;
  out->value = what.value;
  out->elementSize = what.element_bytes;
  out->width = what.width;
  out->height = what.height;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* in) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_fill(in, &operation));
  return replace_operation(node, std::move(operation));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* in, CUcontext) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_fill(in, &operation));
  return replace_operation(exec, node, std::move(operation));
}

CUresult cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* out) {
  GraphNodePtr node;
  std::shared_ptr<const HostOperation> operation;
  GPURUN_TRY(read_node(handle, &node, &operation));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  out->fn = operation->function();
  out->userData = operation->user_data();
  return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* in) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_host(in, &operation));
  return replace_operation(node, std::move(operation));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* in) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_host(in, &operation));
  return replace_operation(exec, node, std::move(operation));
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* out) {
  GraphNodePtr node;
  std::shared_ptr<const ChildGraphOperation> operation;
  GPURUN_TRY(read_node(handle, &node, &operation));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = operation->graph()->as<CUgraph>();
  return CUDA_SUCCESS;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(child);
  if (graph != nullptr && !is_acyclic(*graph)) return CUDA_ERROR_INVALID_VALUE;
  OperationPtr operation;
  GPURUN_TRY(make_child(child, &operation));
  return replace_operation(exec, node, std::move(operation));
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode handle, CUevent* out) {
  GraphNodePtr node;
  std::shared_ptr<const GraphEventOperation> operation;
  GPURUN_TRY(read_node(handle, &node, &operation));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = operation->event()->as<CUevent>();
  return CUDA_SUCCESS;
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return api::cuGraphEventRecordNodeGetEvent(node, out);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_event(event, true, &operation));
  return replace_operation(node, std::move(operation));
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_event(event, false, &operation));
  return replace_operation(node, std::move(operation));
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_event(event, true, &operation));
  return replace_operation(exec, node, std::move(operation));
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_event(event, false, &operation));
  return replace_operation(exec, node, std::move(operation));
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* in) {
  GPURUN_ENTER_DRIVER();
  if (in == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OperationPtr operation;
  GPURUN_TRY(make_operation(nullptr, in, &operation));
  return replace_operation(node, std::move(operation));
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams* in) {
  return api::cuGraphNodeSetParams(node, in);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* in) {
  GPURUN_ENTER_DRIVER();
  if (in == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OperationPtr operation;
  GPURUN_TRY(make_operation(nullptr, in, &operation));
  return replace_operation(exec, node, std::move(operation));
}

}  // namespace gpurun::emulated::api
