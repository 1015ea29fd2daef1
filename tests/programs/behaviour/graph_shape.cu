// Graph shape queried: nodes, roots, edges and types of graphs from a capture or a clone, with
// nodes that the program has never seen. The same node has the same handle, and can be changed.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/support/cuda.h"

using Node = cudaGraphNode_t;
using Nodes = std::vector<Node>;

__global__ void add(int* values, int what) { values[threadIdx.x] += what; }

template <typename Ask>
static Nodes all(Ask ask) {
  size_t count = 0;
  MUST(ask(nullptr, &count));
  Nodes nodes(count + 3, reinterpret_cast<Node>(1));
  size_t room = nodes.size();
  MUST(ask(nodes.data(), &room));
  EXPECT(room == count);
  for (size_t i = count; i < nodes.size(); ++i) EXPECT(nodes[i] == nullptr);
  nodes.resize(count);
  for (const Node node : nodes) EXPECT(node != nullptr);
  return nodes;
}

static Nodes nodes_of(cudaGraph_t graph) {
  return all([graph](Node* list, size_t* count) { return cudaGraphGetNodes(graph, list, count); });
}
static Nodes roots_of(cudaGraph_t graph) {
  return all(
      [graph](Node* list, size_t* count) { return cudaGraphGetRootNodes(graph, list, count); });
}
static Nodes before(Node node) {
  return all([node](Node* list, size_t* count) {
    return cudaGraphNodeGetDependencies(node, list, nullptr, count);
  });
}
static Nodes behind(Node node) {
  return all([node](Node* list, size_t* count) {
    return cudaGraphNodeGetDependentNodes(node, list, nullptr, count);
  });
}

static cudaGraphNodeType type_of(Node node) {
  cudaGraphNodeType type;
  MUST(cudaGraphNodeGetType(node, &type));
  return type;
}

static bool has(const Nodes& nodes, Node node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// A chain of memset, kernel, kernel and a copy out, in the order of their edges.
static Nodes check_chain(cudaGraph_t graph) {
  const Nodes nodes = nodes_of(graph);
  EXPECT(nodes.size() == 4);
  const Nodes roots = roots_of(graph);
  EXPECT(roots.size() == 1 && has(nodes, roots[0]));
  EXPECT(nodes_of(graph) == nodes);  // The same handles once more.
  Nodes chain = roots;
  while (chain.size() < 4) {
    const Nodes next = behind(chain.back());
    EXPECT(next.size() == 1 && has(nodes, next[0]));
    EXPECT(before(next[0]) == Nodes{chain.back()});
    chain.push_back(next[0]);
  }
  EXPECT(behind(chain.back()).empty());
  EXPECT(type_of(chain[0]) == cudaGraphNodeTypeMemset);
  EXPECT(type_of(chain[1]) == cudaGraphNodeTypeKernel);
  EXPECT(type_of(chain[2]) == cudaGraphNodeTypeKernel);
  EXPECT(type_of(chain[3]) == cudaGraphNodeTypeMemcpy);

  size_t count = 0;
  MUST(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  EXPECT(count == 3);
  Nodes from(3), to(3);
  MUST(cudaGraphGetEdges(graph, from.data(), to.data(), nullptr, &count));
  for (size_t i = 0; i < 3; ++i) {
    const auto at = std::find(chain.begin(), chain.end(), from[i]) - chain.begin();
    EXPECT(at < 3 && chain[at + 1] == to[i]);
  }
  return chain;
}

struct World {
  int* device;
  int* host;
  cudaStream_t stream;
};

static cudaGraph_t capture(const World& world) {
  cudaGraph_t graph;
  MUST(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeGlobal));
  MUST(cudaMemsetAsync(world.device, 0, 4 * 32, world.stream));
  add<<<1, 32, 0, world.stream>>>(world.device, 1);
  add<<<1, 32, 0, world.stream>>>(world.device, 20);
  MUST(cudaMemcpyAsync(world.host, world.device, 4 * 32, cudaMemcpyDeviceToHost, world.stream));
  MUST(cudaStreamEndCapture(world.stream, &graph));
  return graph;
}

static int run(const World& world, cudaGraphExec_t exec) {
  world.host[31] = -1;
  MUST(cudaGraphLaunch(exec, world.stream));
  MUST(cudaStreamSynchronize(world.stream));
  return world.host[31];
}

static cudaGraphExec_t make(cudaGraph_t graph) {
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

int main() {
  World world;
  MUST(cudaMalloc(&world.device, 4 * 32));
  MUST(cudaMallocHost(&world.host, 4 * 32));
  MUST(cudaStreamCreate(&world.stream));

  // A capture's nodes, first queried from the whole graph, then changed like nodes of the program.
  cudaGraph_t graph = capture(world);
  const Nodes chain = check_chain(graph);
  cudaGraphExec_t exec = make(graph);
  EXPECT(run(world, exec) == 21);
  int what = 5;
  void* arguments[] = {&world.device, &what};
  cudaKernelNodeParams parameters{};
  parameters.func = reinterpret_cast<void*>(add);
  parameters.gridDim = dim3(1);
  parameters.blockDim = dim3(32);
  parameters.kernelParams = arguments;
  MUST(cudaGraphExecKernelNodeSetParams(exec, chain[1], &parameters));
  EXPECT(run(world, exec) == 25);
  MUST(cudaGraphKernelNodeSetParams(chain[2], &parameters));
  MUST(cudaGraphExecDestroy(exec));
  exec = make(graph);
  EXPECT(run(world, exec) == 6);
  MUST(cudaGraphExecDestroy(exec));

  // A clone's nodes: different from the original's, found one by one and all together.
  cudaGraph_t clone;
  MUST(cudaGraphClone(&clone, graph));
  Node found;
  MUST(cudaGraphNodeFindInClone(&found, chain[1], clone));
  EXPECT(found != nullptr && !has(chain, found) && type_of(found) == cudaGraphNodeTypeKernel);
  const Nodes cloned = check_chain(clone);
  EXPECT(cloned[1] == found);
  for (const Node node : cloned) EXPECT(!has(chain, node));
  // A destroyed node disappears from its graph, and from no other.
  MUST(cudaGraphDestroyNode(found));
  EXPECT(nodes_of(clone).size() == 3 && nodes_of(graph).size() == 4);
  MUST(cudaGraphDestroy(clone));
  EXPECT(check_chain(graph) == chain);

  // A node that the program added keeps its handle.
  Node empty;
  MUST(cudaGraphAddEmptyNode(&empty, graph, &chain[0], 1));
  EXPECT(has(nodes_of(graph), empty) && has(behind(chain[0]), empty));
  EXPECT(behind(chain[0]).size() == 2 && type_of(empty) == cudaGraphNodeTypeEmpty);
  // Each array may be omitted, and a short one is filled.
  size_t room = 2;
  Node some[3] = {nullptr, nullptr, empty};
  MUST(cudaGraphGetNodes(graph, some, &room));
  EXPECT(room == 2 && some[0] != nullptr && some[1] != nullptr && some[2] == empty);
  MUST(cudaGraphDestroy(graph));

  // Later graphs have nodes of their own, however many there were before.
  for (int round = 0; round < 50; ++round) {
    graph = capture(world);
    (void)check_chain(graph);
    MUST(cudaGraphDestroy(graph));
  }
  std::printf("PASSED\n");
  return 0;
}
