// Conditional nodes of graphs, and the handles by which kernels set their values.
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/api/graph_nodes.h"
#include "emulated/objects/conditional.h"

namespace gpurun::emulated {
namespace {

// cuda.h, CUDA_CONDITIONAL_NODE_PARAMS, size.
bool may_have_bodies(CUgraphConditionalNodeType type, unsigned count) {
  switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
      return count == 1 || count == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
      return count == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return count != 0 && count <= kGraphNodesMax;
  }
  return false;
}

}  // namespace

CUresult make_conditional(CUDA_CONDITIONAL_NODE_PARAMS* parameters, OperationPtr* operation) {
  const auto conditional = handles().find<Conditional>(parameters->handle);
  if (conditional == nullptr || !may_have_bodies(parameters->type, parameters->size) ||
      !conditional->take()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto made =
      std::make_shared<ConditionalOperation>(conditional, parameters->type, parameters->size);
  parameters->phGraph_out = made->body_handles();
  *operation = std::move(made);
  return CUDA_SUCCESS;
}

CUresult check_cloneable(const Graph& graph) {
  GPURUN_TRY(check_without_memory(graph));
  for (const GraphNodePtr& node : graph.nodes()) {
    if (node->operation()->graph_node_type() == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    // A graph that has moved into the node may allocate memory.
    for (const GraphPtr& inner : node->operation()->inner_graphs()) {
      GPURUN_TRY(check_cloneable(*inner));
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* out, CUgraph graph_handle,
                                        CUcontext context, unsigned int initial,
                                        unsigned int flags) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr || flags > CU_GRAPH_COND_ASSIGN_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  if (context != nullptr && handles().find<Context>(context) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const auto made = handles().add(std::make_shared<Conditional>(initial, flags != 0));
  // Kernels of executables find it by its handle as long as the graph or one of those lives.
  graph->keep(
      std::shared_ptr<void>(nullptr, [handle = made->handle()](void*) { handles().drop(handle); }));
  *out = made->handle();
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
