// Driver API: what the queries of graphs answer at their edges. Lists without room or with too
// much, data of edges, wrong and dead handles, clones, uploads, memory nodes and conditional nodes
// in other graphs.
#include <cuda.h>

#include <cstring>
#include <initializer_list>

#include "tests/support/cuda.h"

namespace {

// Prints the call with its result.
#define SHOW(call) std::printf("%s: %d\n", #call, static_cast<int>(call))

constexpr std::size_t kRoom = 8;
const auto kNoStream = reinterpret_cast<CUstream>(0x1234);

struct Chain {
  CUgraph graph;
  CUgraphNode first, second, third;
  Chain() {
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
    MUST(cuGraphAddEmptyNode(&second, graph, &first, 1));
    MUST(cuGraphAddEmptyNode(&third, graph, &second, 1));
  }
};

void list_without_room(const Chain& of) {
  CUgraphNode nodes[kRoom], ends[kRoom];
  CUgraphEdgeData data[kRoom];
  std::size_t count = 0;
  SHOW(cuGraphGetNodes(of.graph, nodes, &count));
  SHOW(cuGraphGetRootNodes(of.graph, nodes, &count));
  SHOW(cuGraphGetEdges(of.graph, nodes, ends, data, &count));
  SHOW(cuGraphNodeGetDependencies(of.second, nodes, data, &count));
  SHOW(cuGraphNodeGetDependentNodes(of.second, nodes, data, &count));
  SHOW(cuGraphGetNodes(of.graph, nodes, nullptr));
  std::printf("no room: %zu\n", count);
  count = 1;
  SHOW(cuGraphGetNodes(of.graph, nodes, &count));
  std::printf("room for one: %zu\n", count);
}

void list_with_room(const Chain& of) {
  CUgraphNode nodes[kRoom], ends[kRoom];
  CUgraphEdgeData data[kRoom];
  std::memset(data, 1, sizeof data);
  std::size_t count = kRoom;
  SHOW(cuGraphGetNodes(of.graph, nodes, &count));
  std::printf("nodes: %zu, rest %d\n", count, nodes[kRoom - 1] != nullptr);
  count = kRoom;
  SHOW(cuGraphGetEdges(of.graph, nodes, ends, data, &count));
  std::printf("edges: %zu, data %d, rest %d\n", count, data[0].type, data[kRoom - 1].type);
  count = kRoom;
  SHOW(cuGraphGetEdges(of.graph, nodes, nullptr, nullptr, &count));
  SHOW(cuGraphGetEdges(of.graph, nullptr, nullptr, data, &count));
  SHOW(cuGraphGetEdges(of.graph, nullptr, nullptr, nullptr, &count));
  std::printf("edges: %zu\n", count);
  std::memset(data, 1, sizeof data);
  count = kRoom;
  SHOW(cuGraphNodeGetDependencies(of.second, nodes, data, &count));
  std::printf("behind: %zu, data %d, rest %d\n", count, data[0].type, data[kRoom - 1].type);
  count = kRoom;
  SHOW(cuGraphNodeGetDependencies(of.second, nullptr, data, &count));
  SHOW(cuGraphNodeGetDependencies(of.second, nodes, nullptr, &count));
  std::printf("behind: %zu\n", count);
}

// A list of no address asks for its size. The count that goes in may hold anything.
void ask_for_sizes(const Chain& of) {
  constexpr std::size_t kUnset = ~std::size_t{0};
  std::size_t count = kUnset;
  SHOW(cuGraphGetNodes(of.graph, nullptr, &count));
  std::printf("nodes: %zu\n", count);
  count = kUnset;
  SHOW(cuGraphGetRootNodes(of.graph, nullptr, &count));
  std::printf("roots: %zu\n", count);
  count = kUnset;
  SHOW(cuGraphGetEdges(of.graph, nullptr, nullptr, nullptr, &count));
  std::printf("edges: %zu\n", count);
  count = kUnset;
  SHOW(cuGraphNodeGetDependencies(of.second, nullptr, nullptr, &count));
  std::printf("behind: %zu\n", count);
  count = kUnset;
  SHOW(cuGraphNodeGetDependentNodes(of.second, nullptr, nullptr, &count));
  std::printf("in front: %zu\n", count);
}

void find_in_clones(const Chain& of) {
  CUgraph clone;
  CUgraphNode found = nullptr, added = nullptr;
  SHOW(cuGraphClone(&clone, of.graph));
  SHOW(cuGraphNodeFindInClone(&found, of.second, clone));
  SHOW(cuGraphNodeFindInClone(&added, of.second, of.graph));
  SHOW(cuGraphAddEmptyNode(&added, clone, &found, 1));
  SHOW(cuGraphAddEmptyNode(&added, of.graph, &found, 1));
  SHOW(cuGraphNodeFindInClone(nullptr, of.second, clone));
  SHOW(cuGraphDestroy(clone));
  SHOW(cuGraphNodeFindInClone(&added, of.second, clone));
  CUgraphNodeType type;
  SHOW(cuGraphNodeGetType(found, &type));
}

void instantiate(const Chain& of) {
  CUgraphExec exec, other;
  cuuint64_t flags = 0;
  SHOW(cuGraphInstantiate(&exec, of.graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
  SHOW(cuGraphExecGetFlags(exec, &flags));
  SHOW(cuGraphExecGetFlags(exec, nullptr));
  SHOW(cuGraphExecGetFlags(nullptr, &flags));
  SHOW(cuGraphUpload(exec, nullptr));
  SHOW(cuGraphUpload(exec, kNoStream));
  SHOW(cuGraphUpload(nullptr, nullptr));
  SHOW(cuGraphInstantiate(&other, of.graph, 1U << 20));
  SHOW(cuGraphInstantiate(nullptr, of.graph, 0));
  SHOW(cuGraphInstantiate(&other, nullptr, 0));
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {};
  for (const cuuint64_t wanted : {cuuint64_t{1} << 20, cuuint64_t{0}}) {
    parameters.flags = wanted;
    SHOW(cuGraphInstantiateWithParams(&other, of.graph, &parameters));
    std::printf("result %d\n", static_cast<int>(parameters.result_out));
  }
  parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  parameters.hUploadStream = kNoStream;
  SHOW(cuGraphInstantiateWithParams(&other, of.graph, &parameters));
  std::printf("result %d, flags %d\n", static_cast<int>(parameters.result_out),
              static_cast<int>(flags));
  SHOW(cuGraphLaunch(exec, nullptr));
  SHOW(cuGraphExecDestroy(exec));
  SHOW(cuGraphExecDestroy(exec));
}

void put_memory_in_children(const Chain& of) {
  CUgraph graph, plain, inside;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphCreate(&plain, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  allocation.bytesize = 1 << 20;
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUgraphNode node, end, child;
  SHOW(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocation));
  SHOW(cuGraphAddMemFreeNode(&end, graph, &node, 1, allocation.dptr));
  SHOW(cuGraphAddChildGraphNode(&child, of.graph, nullptr, 0, graph));
  SHOW(cuGraphClone(&inside, graph));
  SHOW(cuGraphDestroyNode(end));
  SHOW(cuGraphAddChildGraphNode(&child, of.graph, nullptr, 0, plain));
  SHOW(cuGraphChildGraphNodeGetGraph(child, &inside));
  SHOW(cuGraphAddMemAllocNode(&node, inside, nullptr, 0, &allocation));
  SHOW(cuGraphDestroyNode(child));
  std::size_t count = 0;
  SHOW(cuGraphGetNodes(inside, nullptr, &count));
  SHOW(cuGraphDestroyNode(child));
  SHOW(cuGraphChildGraphNodeGetGraph(of.first, &inside));
}

void end_conditional_nodes(CUcontext context) {
  CUgraph graph, clone;
  MUST(cuGraphCreate(&graph, 0));
  CUgraphNodeParams parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.type = CU_GRAPH_COND_TYPE_IF;
  parameters.conditional.size = 1;
  parameters.conditional.ctx = context;
  MUST(cuGraphConditionalHandleCreate(&parameters.conditional.handle, graph, context, 0, 0));
  CUgraphNode node, other;
  SHOW(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &parameters));
  const CUgraph body = parameters.conditional.phGraph_out[0];
  SHOW(cuGraphAddNode(&other, graph, nullptr, nullptr, 0, &parameters));
  SHOW(cuGraphClone(&clone, graph));
  SHOW(cuGraphClone(&clone, body));
  SHOW(cuGraphNodeFindInClone(&other, node, clone));
  SHOW(cuGraphDestroyNode(node));
  SHOW(cuGraphAddEmptyNode(&other, body, nullptr, 0));
  SHOW(cuGraphDestroy(graph));
  SHOW(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  CUcontext context;
  MUST(cuInit(0));
  MUST(cuCtxCreate(&context, nullptr, 0, 0));
  const Chain chain;
  list_without_room(chain);
  list_with_room(chain);
  ask_for_sizes(chain);
  find_in_clones(chain);
  instantiate(chain);
  put_memory_in_children(chain);
  end_conditional_nodes(context);
  MUST(cuGraphDestroy(chain.graph));
  CUgraphNodeType type;
  SHOW(cuGraphNodeGetType(chain.first, &type));
  MUST(cuCtxSynchronize());
  std::printf("PASSED\n");
}
