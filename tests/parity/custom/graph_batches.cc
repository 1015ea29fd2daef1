// Memory operations as nodes of graphs: the operations, their context and the dependencies.
#include <vector>

#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {
namespace {

Both<CUgraph> new_graph(Trial& t) {
  Both<CUgraph> graph;
  t.bind(graph, t.client(FN(cuGraphCreate), &graph.client, 0u), "cuGraphCreate", "phGraph");
  t.at_end([&t, graph] { (void)t.call_client(FN(cuGraphDestroy), graph); });
  return graph;
}

// Drawn operations, with a context that each side knows by another handle. Not copyable, because it
// points into itself.
struct Batch {
  std::vector<CUstreamBatchMemOpParams> list;
  Both<CUDA_BATCH_MEM_OP_NODE_PARAMS> both{};

  explicit Batch(Trial& t) {
    const CUdeviceptr memory = t.memory(64);
    for (std::size_t i = t.draw(1, 4); i != 0; --i) {
      CUstreamBatchMemOpParams one{};
      one.writeValue.operation =
          t.one_of({CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_MEM_OP_WRITE_VALUE_32,
                    CU_STREAM_MEM_OP_WRITE_VALUE_64});
      one.writeValue.address = memory + 8 * t.draw(0, 7);
      one.writeValue.value64 = t.draw(0, 1 << 30);
      list.push_back(one);
    }
    both.client.count = static_cast<unsigned>(list.size());
    both.client.paramArray = list.data();
    both.driver = both.client;
    both.client.ctx = t.context().client, both.driver.ctx = t.context().driver;
  }
  Batch(const Batch&) = delete;
  Both<const CUDA_BATCH_MEM_OP_NODE_PARAMS*> pointer() const {
    return {&both.client, &both.driver};
  }
};

Both<CUgraphNode> batch_node(Trial& t, const Both<CUgraph>& graph) {
  const Batch batch(t);
  Both<CUgraphNode> node;
  t.bind(node,
         t.client(FN(cuGraphAddBatchMemOpNode), &node.client, graph, nullptr, 0u, batch.pointer()),
         "cuGraphAddBatchMemOpNode", "phGraphNode");
  return node;
}

}  // namespace

void add_graph_batch_trials(TrialTable& table) {
  table.add("cuGraphAddBatchMemOpNode", [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Both<CUgraphNode> first = batch_node(t, graph), second = batch_node(t, graph);
    const CUgraphNode client_nodes[] = {second.client, first.client};
    const CUgraphNode driver_nodes[] = {second.driver, first.driver};
    const Both<const CUgraphNode*> nodes = {client_nodes, driver_nodes};
    const Batch batch(t);
    Both<CUgraphNode> added;
    t.same(FN(cuGraphAddBatchMemOpNode), out(added), graph, nodes, t.draw(1, 2), batch.pointer());
  });
  table.add("cuGraphBatchMemOpNodeGetParams", [](Trial& t) {
    const Both<CUgraphNode> node = batch_node(t, new_graph(t));
    Both<CUDA_BATCH_MEM_OP_NODE_PARAMS> read{};
    t.same(FN(cuGraphBatchMemOpNodeGetParams), node, out(read));
  });
  table.add("cuGraphBatchMemOpNodeSetParams", [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    (void)batch_node(t, graph);
    const Both<CUgraphNode> node = batch_node(t, graph);
    const Batch batch(t);
    t.same(FN(cuGraphBatchMemOpNodeSetParams), node, batch.pointer());
  });
  table.add("cuGraphExecBatchMemOpNodeSetParams", [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Both<CUgraphNode> node = batch_node(t, graph);
    Both<CUgraphExec> exec;
    t.bind(exec, t.client(FN(cuGraphInstantiateWithFlags), &exec.client, graph, 0ull),
           "cuGraphInstantiateWithFlags", "phGraphExec");
    t.at_end([&t, exec] { (void)t.call_client(FN(cuGraphExecDestroy), exec); });
    const Batch batch(t);
    t.same(FN(cuGraphExecBatchMemOpNodeSetParams), exec, node, batch.pointer());
  });
}

}  // namespace gpurun::parity
