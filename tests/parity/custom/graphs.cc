// Kernel nodes of graphs: a launch's parameters, and handles of graph, nodes and context.
#include "tests/parity/custom/kernels.h"

namespace gpurun::parity {
namespace {

Both<CUgraph> new_graph(Trial& t) {
  Both<CUgraph> graph;
  t.bind(graph, t.client(FN(cuGraphCreate), &graph.client, 0u), "cuGraphCreate", "phGraph");
  t.at_end([&t, graph] { (void)t.call_client(FN(cuGraphDestroy), graph); });
  return graph;
}

// The driver's half has the driver's handles. Not copyable, because it points into itself.
struct Node {
  Both<CUDA_KERNEL_NODE_PARAMS> both;
  AddArguments arguments;

  explicit Node(Trial& t) : arguments(t) {
    CUDA_KERNEL_NODE_PARAMS node{};
    node.gridDimX = static_cast<unsigned>(t.draw(1, 1000));
    node.gridDimY = static_cast<unsigned>(t.draw(1, 1000));
    node.gridDimZ = static_cast<unsigned>(t.draw(1, 1000));
    node.blockDimX = static_cast<unsigned>(t.draw(1, 10));
    node.blockDimY = static_cast<unsigned>(t.draw(1, 10));
    node.blockDimZ = static_cast<unsigned>(t.draw(1, 10));
    node.sharedMemBytes = static_cast<unsigned>(t.draw(0, 49152));
    if (t.draw(0, 1) == 0) {
      node.kernelParams = arguments.pointers();
    } else {
      node.extra = arguments.extra();
    }
    both = {node, node};
    if (t.draw(0, 1) == 0) {
      const Both<CUfunction> function = function_of(t, new_module(t), "add");
      both.client.func = function.client, both.driver.func = function.driver;
    } else {
      const Both<CUkernel> kernel = kernel_of(t, new_library(t), "add");
      both.client.kern = kernel.client, both.driver.kern = kernel.driver;
    }
    if (t.draw(0, 1) == 0) {
      both.client.ctx = t.context().client, both.driver.ctx = t.context().driver;
    }
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  Both<const CUDA_KERNEL_NODE_PARAMS*> pointer() const { return {&both.client, &both.driver}; }
};

Both<CUgraphNode> kernel_node(Trial& t, const Both<CUgraph>& graph) {
  const Node node(t);
  Both<CUgraphNode> added;
  t.bind(added,
         t.client(FN(cuGraphAddKernelNode_v2), &added.client, graph, nullptr, 0u, node.pointer()),
         "cuGraphAddKernelNode_v2", "phGraphNode");
  return added;
}

}  // namespace

void add_graph_trials(TrialTable& table) {
  table.add("cuGraphAddKernelNode_v2", [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    CUgraphNode client_nodes[3] = {}, driver_nodes[3] = {};
    const std::size_t count = t.draw(0, 3);
    for (std::size_t i = 0; i < count; ++i) {
      const Both<CUgraphNode> node = kernel_node(t, graph);
      client_nodes[i] = node.client, driver_nodes[i] = node.driver;
    }
    Both<const CUgraphNode*> nodes;
    if (count != 0) nodes = {client_nodes, driver_nodes};
    const Node node(t);
    Both<CUgraphNode> added;
    const Seen seen =
        t.same(FN(cuGraphAddKernelNode_v2), out(added), graph, nodes, count, node.pointer());
    t.bind(added, seen, "cuGraphAddKernelNode_v2", "phGraphNode");
    t.same(FN(cuGraphDestroyNode), added);
  });
  table.add("cuGraphKernelNodeSetParams_v2", [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    (void)kernel_node(t, graph);
    const Both<CUgraphNode> node = kernel_node(t, graph);
    const Node parameters(t);
    t.same(FN(cuGraphKernelNodeSetParams_v2), node, parameters.pointer());
  });
  table.add("cuGraphExecKernelNodeSetParams_v2", [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Both<CUgraphNode> node = kernel_node(t, graph);
    Both<CUgraphExec> exec;
    t.bind(exec, t.client(FN(cuGraphInstantiateWithFlags), &exec.client, graph, 0ull),
           "cuGraphInstantiateWithFlags", "phGraphExec");
    t.at_end([&t, exec] { (void)t.call_client(FN(cuGraphExecDestroy), exec); });
    const Node parameters(t);
    t.same(FN(cuGraphExecKernelNodeSetParams_v2), exec, node, parameters.pointer());
  });
}

}  // namespace gpurun::parity
