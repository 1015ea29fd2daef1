// Driver API: more nodes and bodies of graphs, one graph after the other, than a session may have
// handles at a time (limits::kHandlesMax). They end with their graph.
#include <cuda.h>

#include <vector>

#include "driver_test.h"

namespace {

constexpr std::size_t kAtOnce = 30'000;
constexpr std::size_t kRounds = (std::size_t{1} << 22) / kAtOnce + 2;

// The nodes of a clone are known once they are listed.
void list_nodes_of_clone(CUgraph original) {
  CUgraph clone;
  MUST(cuGraphClone(&clone, original));
  std::vector<CUgraphNode> nodes(kAtOnce);
  std::size_t count = nodes.size();
  MUST(cuGraphGetNodes(clone, nodes.data(), &count));
  EXPECT(count == kAtOnce && nodes.back() != nullptr);
  MUST(cuGraphDestroy(clone));
  CUgraphNodeType type;
  EXPECT(cuGraphNodeGetType(nodes.front(), &type) == CUDA_ERROR_INVALID_VALUE);
}

void make_bodies(CUcontext context) {
  CUgraph graph;
  MUST(cuGraphCreate(&graph, 0));
  CUgraphNodeParams parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.type = CU_GRAPH_COND_TYPE_SWITCH;
  parameters.conditional.size = kAtOnce;
  parameters.conditional.ctx = context;
  MUST(cuGraphConditionalHandleCreate(&parameters.conditional.handle, graph, context, 0, 0));
  CUgraphNode node, empty;
  MUST(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &parameters));
  MUST(cuGraphAddEmptyNode(&empty, parameters.conditional.phGraph_out[kAtOnce - 1], nullptr, 0));
  MUST(cuGraphDestroy(graph));
}

}  // namespace

int main(int, char** arguments) {
  end_after(300);
  const Device device(arguments[1]);
  CUgraph original;
  MUST(cuGraphCreate(&original, 0));
  CUgraphNode node;
  for (std::size_t i = 0; i < kAtOnce; ++i) MUST(cuGraphAddEmptyNode(&node, original, nullptr, 0));
  for (std::size_t i = 0; i < kRounds; ++i) {
    if (i % 2 == 0) list_nodes_of_clone(original);
    if (i % 2 == 1) make_bodies(device.context);
  }
  MUST(cuGraphDestroy(original));
  std::printf("%zu rounds\nPASSED\n", kRounds);
}
