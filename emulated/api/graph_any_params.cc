// Parameters of a node of any type (CUDA 13.2): what the function of its type returns, and its
// context.
#include <cstring>
#include <memory>

#include "emulated/api.h"
#include "emulated/api/graph_nodes.h"
#include "emulated/objects/conditional.h"

namespace gpurun::emulated {
namespace {

CUresult read_conditional(const GraphNode& node, CUDA_CONDITIONAL_NODE_PARAMS* out) {
  const auto operation = std::dynamic_pointer_cast<ConditionalOperation>(node.operation());
  if (operation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  out->handle = operation->conditional().handle();
  out->type = operation->type();
  out->size = static_cast<unsigned int>(operation->inner_graphs().size());
  out->phGraph_out = operation->body_handles();
  out->ctx = reinterpret_cast<CUcontext>(node.context());
  return CUDA_SUCCESS;
}

CUresult read_memset(CUgraphNode handle, CUcontext context, CUDA_MEMSET_NODE_PARAMS_v2* out) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  GPURUN_TRY(api::cuGraphMemsetNodeGetParams(handle, &fill));
  std::memcpy(out, &fill, sizeof fill);
  out->ctx = context;
  return CUDA_SUCCESS;
}

CUresult read_kernel(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v3* out) {
  CUDA_KERNEL_NODE_PARAMS kernel{};
  GPURUN_TRY(api::cuGraphKernelNodeGetParams_v2(handle, &kernel));
  static_assert(sizeof kernel == sizeof *out);
  std::memcpy(out, &kernel, sizeof kernel);
  return CUDA_SUCCESS;
}

CUresult read_allocation(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS_v2* out) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  GPURUN_TRY(api::cuGraphMemAllocNodeGetParams(handle, &allocation));
  static_assert(sizeof allocation == sizeof *out);
  std::memcpy(out, &allocation, sizeof allocation);
  return CUDA_SUCCESS;
}

CUresult read_batch(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS_v2* out) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
  GPURUN_TRY(api::cuGraphBatchMemOpNodeGetParams(handle, &batch));
  *out = {batch.ctx, batch.count, batch.paramArray, batch.flags};
  return CUDA_SUCCESS;
}

CUresult read(const GraphNode& node, CUgraphNodeParams* out) {
  const auto handle = node.as<CUgraphNode>();
  const auto context = reinterpret_cast<CUcontext>(node.context());
  switch (out->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return read_kernel(handle, &out->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      out->memcpy.copyCtx = context;
      return api::cuGraphMemcpyNodeGetParams(handle, &out->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return read_memset(handle, context, &out->memset);
    case CU_GRAPH_NODE_TYPE_HOST: {
      CUDA_HOST_NODE_PARAMS host{};
      GPURUN_TRY(api::cuGraphHostNodeGetParams(handle, &host));
      out->host.fn = host.fn;
      out->host.userData = host.userData;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      out->graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID;
      return api::cuGraphChildGraphNodeGetGraph(handle, &out->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return api::cuGraphEventWaitNodeGetEvent(handle, &out->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return api::cuGraphEventRecordNodeGetEvent(handle, &out->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return read_allocation(handle, &out->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return api::cuGraphMemFreeNodeGetParams(handle, &out->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return read_batch(handle, &out->memOp);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return read_conditional(node, &out->conditional);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

CUresult api::cuGraphNodeGetParams(CUgraphNode handle, CUgraphNodeParams* out) {
  GPURUN_ENTER_DRIVER();
  const auto node = handles().find<GraphNode>(handle);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams made{};
  made.type = node->operation()->graph_node_type();
  GPURUN_TRY(read(*node, &made));
  *out = made;
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated
