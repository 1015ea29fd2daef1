// Conditional nodes of graphs: if, else, while and switch, decided by kernels of the same graph.
// Nested ones too, and the value that each launch begins with.
#include <cstdio>
#include <vector>

#include "tests/support/cuda.h"

namespace {

__global__ void choose(cudaGraphConditionalHandle handle, const unsigned* value) {
  cudaGraphSetConditional(handle, *value);
}

__global__ void count_down(cudaGraphConditionalHandle handle, unsigned* left, unsigned* turns) {
  ++*turns;
  cudaGraphSetConditional(handle, --*left);
}

__global__ void add(unsigned* to, unsigned what) { *to += what; }

struct Graph {
  cudaGraph_t graph;
  Graph() { MUST(cudaGraphCreate(&graph, 0)); }
  ~Graph() { MUST(cudaGraphDestroy(graph)); }
  Graph(const Graph&) = delete;
};

cudaGraphConditionalHandle handle_in(cudaGraph_t graph, unsigned initial, unsigned flags) {
  cudaGraphConditionalHandle handle;
  MUST(cudaGraphConditionalHandleCreate(&handle, graph, initial, flags));
  return handle;
}

// The bodies of a new node.
std::vector<cudaGraph_t> add_conditional(cudaGraph_t graph,
                                         const std::vector<cudaGraphNode_t>& behind,
                                         cudaGraphConditionalHandle handle,
                                         cudaGraphConditionalNodeType type, unsigned bodies) {
  cudaGraphNodeParams parameters = {};
  parameters.type = cudaGraphNodeTypeConditional;
  parameters.conditional.handle = handle;
  parameters.conditional.type = type;
  parameters.conditional.size = bodies;
  cudaGraphNode_t node;
  MUST(cudaGraphAddNode(&node, graph, behind.data(), nullptr, behind.size(), &parameters));
  cudaGraphNodeType seen;
  MUST(cudaGraphNodeGetType(node, &seen));
  if (seen != cudaGraphNodeTypeConditional) cuda_check::fail(__FILE__, __LINE__, "type", "");
  return {parameters.conditional.phGraph_out, parameters.conditional.phGraph_out + bodies};
}

template <typename... Arguments>
cudaGraphNode_t add_kernel(cudaGraph_t graph, void (*kernel)(Arguments...),
                           Arguments... arguments) {
  void* places[] = {&arguments...};
  cudaGraphNodeParams parameters = {};
  parameters.type = cudaGraphNodeTypeKernel;
  parameters.kernel.func = reinterpret_cast<void*>(kernel);
  parameters.kernel.gridDim = parameters.kernel.blockDim = dim3(1);
  parameters.kernel.kernelParams = places;
  cudaGraphNode_t node;
  MUST(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &parameters));
  return node;
}

unsigned* words(std::initializer_list<unsigned> values) {
  unsigned* made;
  MUST(cudaMalloc(&made, values.size() * sizeof *made));
  MUST(cudaMemcpy(made, values.begin(), values.size() * sizeof *made, cudaMemcpyHostToDevice));
  return made;
}
unsigned read(const unsigned* word) {
  unsigned value;
  MUST(cudaMemcpy(&value, word, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}
void write(unsigned* word, unsigned value) {
  MUST(cudaMemcpy(word, &value, sizeof value, cudaMemcpyHostToDevice));
}

struct Exec {
  cudaGraphExec_t exec;
  explicit Exec(const Graph& of) { MUST(cudaGraphInstantiate(&exec, of.graph, 0)); }
  ~Exec() { MUST(cudaGraphExecDestroy(exec)); }
  Exec(const Exec&) = delete;
  void launch() const {
    MUST(cudaGraphLaunch(exec, nullptr));
    MUST(cudaStreamSynchronize(nullptr));
  }
};

// Each body adds a power of ten, so that a sum tells which of them ran.
void choose_bodies(const char* name, cudaGraphConditionalNodeType type, unsigned bodies) {
  unsigned* const memory = words({0, 0});
  Graph graph;
  const auto handle = handle_in(graph.graph, 0, 0);
  const auto first = add_kernel(graph.graph, &choose, handle, static_cast<const unsigned*>(memory));
  unsigned what = 1;
  for (const cudaGraph_t body : add_conditional(graph.graph, {first}, handle, type, bodies)) {
    add_kernel(body, &add, memory + 1, what);
    what *= 10;
  }
  const Exec exec(graph);
  std::printf("%s:", name);
  for (unsigned value = 0; value < 4; ++value) {
    write(memory, value);
    write(memory + 1, 0);
    exec.launch();
    std::printf(" %u", read(memory + 1));
  }
  std::printf("\n");
  MUST(cudaFree(memory));
}

void repeat() {
  unsigned* const memory = words({5, 0});
  Graph graph;
  const auto handle = handle_in(graph.graph, 1, cudaGraphCondAssignDefault);
  const auto bodies = add_conditional(graph.graph, {}, handle, cudaGraphCondTypeWhile, 1);
  add_kernel(bodies[0], &count_down, handle, memory, memory + 1);
  const Exec exec(graph);
  exec.launch();
  std::printf("while: %u turns\n", read(memory + 1));
  // The next launch begins with the default again.
  write(memory, 3);
  exec.launch();
  std::printf("while: %u turns\n", read(memory + 1));
  // A conditional node cannot be cloned.
  cudaGraph_t clone;
  std::printf("clone: %d\n", cudaGraphClone(&clone, graph.graph) != cudaSuccess);
  (void)cudaGetLastError();
  MUST(cudaFree(memory));
}

// A while with an if in its body. A captured launch is part of the inner body.
void nest() {
  unsigned* const memory = words({4, 0, 1, 0});
  Graph graph;
  const auto outer = handle_in(graph.graph, 1, cudaGraphCondAssignDefault);
  const auto inner = handle_in(graph.graph, 0, cudaGraphCondAssignDefault);
  const auto loop = add_conditional(graph.graph, {}, outer, cudaGraphCondTypeWhile, 1)[0];
  const auto decide = add_kernel(loop, &choose, inner, static_cast<const unsigned*>(memory + 2));
  add_kernel(loop, &count_down, outer, memory, memory + 1);
  const auto body = add_conditional(loop, {decide}, inner, cudaGraphCondTypeIf, 1)[0];
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  MUST(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0,
                                     cudaStreamCaptureModeRelaxed));
  add<<<1, 1, 0, stream>>>(memory + 3, 7);
  cudaGraph_t captured;
  MUST(cudaStreamEndCapture(stream, &captured));
  std::printf("captured into the body: %d\n", captured == body);
  const Exec exec(graph);
  exec.launch();
  std::printf("nested: %u turns, sum %u\n", read(memory + 1), read(memory + 3));
  MUST(cudaStreamDestroy(stream));
  MUST(cudaFree(memory));
}

void refuse() {
  Graph graph, other;
  const auto handle = handle_in(graph.graph, 0, 0);
  cudaGraphNodeParams parameters = {};
  parameters.type = cudaGraphNodeTypeConditional;
  parameters.conditional.handle = handle;
  parameters.conditional.type = cudaGraphCondTypeWhile;
  parameters.conditional.size = 2;
  cudaGraphNode_t node;
  std::printf("two bodies of a while: %d\n",
              cudaGraphAddNode(&node, graph.graph, nullptr, nullptr, 0, &parameters));
  parameters.conditional.size = 1;
  parameters.conditional.handle = 0;
  std::printf("no handle: %d\n",
              cudaGraphAddNode(&node, graph.graph, nullptr, nullptr, 0, &parameters));
  (void)cudaGetLastError();
}

// What cudaGraphInstantiateWithParams says of a graph with edges in a circle inside `inner`.
void instantiate_circle(const char* name, cudaGraph_t graph, cudaGraph_t inner) {
  cudaGraphNode_t nodes[2];
  for (cudaGraphNode_t& node : nodes) MUST(cudaGraphAddEmptyNode(&node, inner, nullptr, 0));
  const cudaGraphNode_t ends[] = {nodes[1], nodes[0]};
  MUST(cudaGraphAddDependencies(inner, nodes, ends, nullptr, 2));
  cudaGraphInstantiateParams parameters = {};
  cudaGraphExec_t exec;
  const cudaError_t result = cudaGraphInstantiateWithParams(&exec, graph, &parameters);
  if (result != cudaErrorInvalidValue) cuda_check::fail(__FILE__, __LINE__, name, "instantiated");
  const cudaGraphNode_t failed = parameters.errNode_out;
  std::printf("circle in %s: %d, %d, node %d\n", name, result, parameters.result_out,
              failed == nodes[0] || failed == nodes[1]);
  (void)cudaGetLastError();
}

void refuse_circles() {
  Graph graph, child;
  const auto outer = handle_in(graph.graph, 1, cudaGraphCondAssignDefault);
  const auto inner = handle_in(graph.graph, 1, cudaGraphCondAssignDefault);
  const auto loop = add_conditional(graph.graph, {}, outer, cudaGraphCondTypeWhile, 1)[0];
  const auto body = add_conditional(loop, {}, inner, cudaGraphCondTypeIf, 1)[0];
  cudaGraphNode_t node;
  // A body cannot contain the graph that it is in.
  if (cudaGraphAddChildGraphNode(&node, body, nullptr, 0, graph.graph) == cudaSuccess) {
    cuda_check::fail(__FILE__, __LINE__, "parent in its body", "added");
  }
  (void)cudaGetLastError();
  instantiate_circle("a body", graph.graph, body);
  Graph parent;
  MUST(cudaGraphAddChildGraphNode(&node, parent.graph, nullptr, 0, child.graph));
  cudaGraph_t inside;
  MUST(cudaGraphChildGraphNodeGetGraph(node, &inside));
  instantiate_circle("a child", parent.graph, inside);
}

// With the emulated device's watchdog: neither loop ends by itself. The context is of no use then.
void loop_for_ever(bool with_kernel) {
  unsigned* const memory = words({0, 0});
  cudaGraph_t graph;
  MUST(cudaGraphCreate(&graph, 0));
  const auto handle = handle_in(graph, 1, cudaGraphCondAssignDefault);
  const auto body = add_conditional(graph, {}, handle, cudaGraphCondTypeWhile, 1)[0];
  if (with_kernel) add_kernel(body, &count_down, handle, memory, memory + 1);
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaGraphLaunch(exec, nullptr));
  std::printf("endless: %s\n", cudaGetErrorName(cudaStreamSynchronize(nullptr)));
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) {
    loop_for_ever(arguments[1][0] == 'k');
    return 0;
  }
  choose_bodies("if", cudaGraphCondTypeIf, 1);
  choose_bodies("if and else", cudaGraphCondTypeIf, 2);
  choose_bodies("switch", cudaGraphCondTypeSwitch, 3);
  repeat();
  nest();
  refuse();
  refuse_circles();
  std::printf("PASSED\n");
}
