// Memory operations as nodes of graphs (manual, cuGraphAddBatchMemOpNode).
#include <memory>

#include "emulated/api.h"
#include "emulated/api/graph_nodes.h"
#include "emulated/objects/memory_operations.h"

namespace gpurun::emulated::api {

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* in) {
  GPURUN_ENTER_DRIVER();
  if (in == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OperationPtr operation;
  GPURUN_TRY(make_memory_operations(*in, &operation));
  return add_graph_node(out, graph, dependencies, count, std::move(operation), in->ctx);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  GPURUN_ENTER_DRIVER();
  const auto node = handles().find<GraphNode>(handle);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto operation = std::dynamic_pointer_cast<const MemoryOperations>(node->operation());
  if (operation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = CUDA_BATCH_MEM_OP_NODE_PARAMS{};
  out->ctx = reinterpret_cast<CUcontext>(node->context());
  out->count = static_cast<unsigned int>(operation->list().size());
  // "Any memory pointed to ... must not be modified" (manual, cuGraphNodeGetParams).
  out->paramArray = const_cast<CUstreamBatchMemOpParams*>(operation->list().data());
  return CUDA_SUCCESS;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* in) {
  GPURUN_ENTER_DRIVER();
  if (in == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OperationPtr operation;
  GPURUN_TRY(make_memory_operations(*in, &operation));
  return replace_operation(node, std::move(operation));
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* in) {
  GPURUN_ENTER_DRIVER();
  if (in == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OperationPtr operation;
  GPURUN_TRY(make_memory_operations(*in, &operation));
  return replace_operation(exec, node, std::move(operation));
}

}  // namespace gpurun::emulated::api
