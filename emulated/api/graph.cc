// Graphs: nodes, edges, and queries about them.
#include <algorithm>
#include <cstring>

#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/api/graph_nodes.h"
#include "emulated/objects/graph_exec.h"

namespace gpurun::emulated {
namespace {

bool has_data(const CUgraphEdgeData& data) {
  static constexpr CUgraphEdgeData kNone{};
  return std::memcmp(&data, &kNone, sizeof data) != 0;
}

// The nodes of the list, each once: "May not have any duplicate entries" (manual).
CUresult find_dependencies(const Graph& graph, const CUgraphNode* list, std::size_t count,
                           std::vector<GraphNodePtr>* before) {
  GPURUN_TRY(find_nodes(graph, list, count, before));
  std::vector<GraphNodePtr> sorted = *before;
  std::sort(sorted.begin(), sorted.end());
  const bool unique = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  return unique ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Fills `list` with up to `*count` nodes, sets the rest to null, and sets `*count` to the number
// written. Without a list sets `*count` to the number of nodes (manual, cuGraphGetNodes).
CUresult list_nodes(const std::vector<GraphNodePtr>& nodes, CUgraphNode* list, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (list == nullptr) {
    *count = nodes.size();
    return CUDA_SUCCESS;
  }
  const std::size_t room = *count;
  for (std::size_t i = 0; i < room; ++i) {
    list[i] = i < nodes.size() ? nodes[i]->as<CUgraphNode>() : nullptr;
  }
  *count = std::min(room, nodes.size());
  return CUDA_SUCCESS;
}

// As list_nodes(), for nodes at the other ends of edges. LOSSY_QUERY: a list of nodes alone would
// hide data of edges (manual, cuGraphNodeGetDependencies).
CUresult list_edges(const std::vector<GraphEdge>& all, CUgraphNode* list, CUgraphEdgeData* data,
                    std::size_t* count) {
  if (count == nullptr || (data != nullptr && list == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNodePtr> nodes;
  for (const GraphEdge& edge : all) {
    if (list != nullptr && data == nullptr && has_data(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
    nodes.push_back(edge.node);
  }
  for (std::size_t i = 0; data != nullptr && i < *count; ++i) {
    data[i] = i < all.size() ? all[i].data : CUgraphEdgeData{};
  }
  return list_nodes(nodes, list, count);
}

using EdgeChange = bool (Graph::*)(const GraphNodePtr&, const GraphNodePtr&,
                                   const CUgraphEdgeData&);

CUresult change_edges(CUgraph graph_handle, const CUgraphNode* from, const CUgraphNode* to,
                      const CUgraphEdgeData* edges, std::size_t count, EdgeChange change) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNodePtr> starts, ends;
  GPURUN_TRY(find_nodes(*graph, from, count, &starts));
  GPURUN_TRY(find_nodes(*graph, to, count, &ends));
  for (std::size_t i = 0; i < count; ++i) {
    const CUgraphEdgeData data = edges == nullptr ? CUgraphEdgeData{} : edges[i];
    if (!fits_edge(*starts[i]->operation(), *ends[i]->operation(), data) ||
        !((*graph).*change)(starts[i], ends[i], data)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

// The node and its graph.
CUresult enter_node(CUgraphNode handle, GraphNodePtr* node, GraphPtr* graph) {
  GPURUN_ENTER_DRIVER();
  *node = handles().find<GraphNode>(handle);
  if (*node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = (*node)->graph();
  return *graph == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// The context that the parameters of any node name.
CUcontext context_in(const CUgraphNodeParams& parameters) {
  switch (parameters.type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return parameters.memcpy.copyCtx;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return parameters.memset.ctx;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return parameters.memOp.ctx;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return parameters.conditional.ctx;
    default:
      return nullptr;
  }
}

}  // namespace

CUresult add_graph_node(CUgraphNode* out, CUgraph graph_handle, const CUgraphNode* dependencies,
                        std::size_t count, OperationPtr operation, CUcontext context) {
  const auto graph = handles().find<Graph>(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNodePtr> before;
  GPURUN_TRY(find_dependencies(*graph, dependencies, count, &before));
  const GraphNodePtr node = graph->add(std::move(operation), before);
  node->set_context(context_of_node(context));
  *out = node->as<CUgraphNode>();
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuGraphCreate(CUgraph* out, unsigned int flags) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = handles().add(std::make_shared<Graph>())->as<CUgraph>();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(handle);
  if (graph != nullptr && graph->moved()) return CUDA_ERROR_INVALID_VALUE;
  return handles().remove<Graph>(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* out, CUgraph handle) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(check_cloneable(*graph));
  *out = handles().add(graph->clone())->as<CUgraph>();
  return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  GPURUN_ENTER_DRIVER();
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OperationPtr operation;
  GPURUN_TRY(make_kernel(*parameters, &operation));
  return add_graph_node(out, graph, dependencies, count, std::move(operation));
}

CUresult cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  GPURUN_ENTER_DRIVER();
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS kernel = newer(*parameters);
  return api::cuGraphAddKernelNode_v2(out, graph, dependencies, count, &kernel);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMCPY3D* parameters, CUcontext context) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_copy(parameters, &operation));
  return add_graph_node(out, graph, dependencies, count, std::move(operation), context);
}

CUresult cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS* parameters,
                              CUcontext context) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_fill(parameters, &operation));
  return add_graph_node(out, graph, dependencies, count, std::move(operation), context);
}

CUresult cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                            size_t count, const CUDA_HOST_NODE_PARAMS* parameters) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_host(parameters, &operation));
  return add_graph_node(out, graph, dependencies, count, std::move(operation));
}

CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count) {
  GPURUN_ENTER_DRIVER();
  return add_graph_node(out, graph, dependencies, count, std::make_shared<EmptyOperation>());
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, CUgraph child) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_child(child, &operation));
  return add_graph_node(out, graph, dependencies, count, std::move(operation));
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                   size_t count, CUevent event) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_event(event, true, &operation));
  return add_graph_node(out, graph, dependencies, count, std::move(operation));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, CUevent event) {
  GPURUN_ENTER_DRIVER();
  OperationPtr operation;
  GPURUN_TRY(make_event(event, false, &operation));
  return add_graph_node(out, graph, dependencies, count, std::move(operation));
}

CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph_handle, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* edges, size_t count,
                           CUgraphNodeParams* parameters) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNodePtr> before;
  GPURUN_TRY(find_dependencies(*graph, dependencies, count, &before));
  const std::span<const CUgraphEdgeData> data(edges, edges == nullptr ? 0 : count);
  // First, because a child graph that has moved into an operation would end with it.
  const EmptyOperation kind(parameters->type);
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (!fits_edge(*before[i]->operation(), kind, data[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  OperationPtr operation;
  GPURUN_TRY(make_operation(graph.get(), parameters, &operation));
  const GraphNodePtr node = graph->add(std::move(operation), before, 0, data);
  node->set_context(context_of_node(context_in(*parameters)));
  *out = node->as<CUgraphNode>();
  return CUDA_SUCCESS;
}

// Also accepts nodes of green contexts, which do not exist here.
CUresult cuGraphAddNode_v3(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* edges, size_t count,
                           CUgraphNodeParams* parameters) {
  return api::cuGraphAddNode_v2(out, graph, dependencies, edges, count, parameters);
}

CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                        size_t count, CUgraphNodeParams* parameters) {
  return api::cuGraphAddNode_v2(out, graph, dependencies, nullptr, count, parameters);
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
  GraphNodePtr node;
  GraphPtr graph;
  GPURUN_TRY(enter_node(handle, &node, &graph));
  GPURUN_TRY(check_without_memory(*graph));
  return graph->remove(node) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edges, size_t count) {
  return change_edges(graph, from, to, edges, count, &Graph::add_edge);
}
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t count) {
  return change_edges(graph, from, to, nullptr, count, &Graph::add_edge);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* edges, size_t count) {
  return change_edges(graph, from, to, edges, count, &Graph::remove_edge);
}
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t count) {
  return change_edges(graph, from, to, nullptr, count, &Graph::remove_edge);
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* list, size_t* count) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return list_nodes(graph->nodes(), list, count);
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* list, size_t* count) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto nodes = graph->nodes();
  std::erase_if(nodes, [&graph](const auto& node) { return !graph->dependencies(*node).empty(); });
  return list_nodes(nodes, list, count);
}

CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edges, size_t* count) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge> starts;
  std::vector<GraphNodePtr> ends;
  for (const GraphNodePtr& node : graph->nodes()) {
    for (GraphEdge& edge : graph->edges_to(*node)) {
      starts.push_back(std::move(edge));
      ends.push_back(node);
    }
  }
  std::size_t written = *count;
  GPURUN_TRY(list_edges(starts, from, edges, &written));
  return list_nodes(ends, to, count);
}
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return api::cuGraphGetEdges_v2(graph, from, to, nullptr, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* list,
                                       CUgraphEdgeData* edges, size_t* count) {
  GraphNodePtr node;
  GraphPtr graph;
  GPURUN_TRY(enter_node(handle, &node, &graph));
  return list_edges(graph->edges_to(*node), list, edges, count);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* list, size_t* count) {
  return api::cuGraphNodeGetDependencies_v2(node, list, nullptr, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* list,
                                         CUgraphEdgeData* edges, size_t* count) {
  GraphNodePtr node;
  GraphPtr graph;
  GPURUN_TRY(enter_node(handle, &node, &graph));
  return list_edges(graph->edges_from(*node), list, edges, count);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* list, size_t* count) {
  return api::cuGraphNodeGetDependentNodes_v2(node, list, nullptr, count);
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  GraphNodePtr node;
  GraphPtr graph;
  GPURUN_TRY(enter_node(handle, &node, &graph));
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->operation()->graph_node_type();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone_handle) {
  GPURUN_ENTER_DRIVER();
  const auto clone = handles().find<Graph>(clone_handle);
  if (clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr || original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const GraphNodePtr& node : clone->nodes()) {
    if (node->original() != reinterpret_cast<std::uintptr_t>(original)) continue;
    *out = node->as<CUgraphNode>();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpurun::emulated::api
