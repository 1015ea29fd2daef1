// Numbers of graphs and nodes (CUDA 13.1), and the graph that a node is in.
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/objects/graph_exec.h"

namespace gpurun::emulated {
namespace {

// The serial number in a handle (HandleTable::add). By cuda.h the numbers of a graph and of its
// node together identify the node. Here a node's own number does.
unsigned number_of(const Object& object) { return static_cast<unsigned>(object.handle() >> 4); }

// The live node. INVALID_VALUE as cuda.h says, also for a node of a graph that is gone.
CUresult enter_node(CUgraphNode handle, const void* out, GraphNodePtr* node, GraphPtr* graph) {
  GPURUN_ENTER_DRIVER();
  *node = handles().find<GraphNode>(handle);
  if (*node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = (*node)->graph();
  return *graph == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

template <typename T, typename Handle>
CUresult give_number(Handle handle, unsigned int* number) {
  GPURUN_ENTER_DRIVER();
  const auto object = handles().find<T>(handle);
  if (object == nullptr || number == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *number = number_of(*object);
  return CUDA_SUCCESS;
}

}  // namespace

namespace api {

CUresult cuGraphGetId(CUgraph graph, unsigned int* id) { return give_number<Graph>(graph, id); }

CUresult cuGraphExecGetId(CUgraphExec graph, unsigned int* id) {
  return give_number<GraphExec>(graph, id);
}

CUresult cuGraphNodeGetLocalId(CUgraphNode handle, unsigned int* id) {
  GraphNodePtr node;
  GraphPtr graph;
  GPURUN_TRY(enter_node(handle, id, &node, &graph));
  *id = number_of(*node);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetToolsId(CUgraphNode handle, unsigned long long* id) {
  GraphNodePtr node;
  GraphPtr graph;
  GPURUN_TRY(enter_node(handle, id, &node, &graph));
  *id = node->handle();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode handle, CUgraph* out) {
  GraphNodePtr node;
  GraphPtr graph;
  GPURUN_TRY(enter_node(handle, out, &node, &graph));
  *out = graph->as<CUgraph>();
  return CUDA_SUCCESS;
}

}  // namespace api
}  // namespace gpurun::emulated
