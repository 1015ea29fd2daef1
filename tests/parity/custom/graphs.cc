// Kernel nodes of graphs: a launch's parameters, and handles of graph, nodes and context. Nodes of
// any type, which the driver gets by the function of the type.
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

constexpr char kTyped[] = "the function of the node's type";

// The same node for either function.
CUgraphNodeParams any_of(const CUDA_KERNEL_NODE_PARAMS& kernel) {
  CUgraphNodeParams any{};
  any.type = CU_GRAPH_NODE_TYPE_KERNEL;
  static_assert(sizeof any.kernel == sizeof kernel);
  std::memcpy(&any.kernel, &kernel, sizeof kernel);
  return any;
}

CUDA_MEMSET_NODE_PARAMS fill_of(Trial& t) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.elementSize = t.one_of({1u, 2u, 4u});
  fill.width = t.draw(1, 100);
  fill.height = 1;
  fill.dst = t.memory(400);
  fill.value = static_cast<unsigned>(t.draw(0, 255));
  return fill;
}
CUgraphNodeParams any_of(const CUDA_MEMSET_NODE_PARAMS& fill, CUcontext context) {
  CUgraphNodeParams any{};
  any.type = CU_GRAPH_NODE_TYPE_MEMSET;
  std::memcpy(&any.memset, &fill, sizeof fill);
  any.memset.ctx = context;
  return any;
}

Both<CUgraphNode> empty_node(Trial& t, const Both<CUgraph>& graph) {
  Both<CUgraphNode> node;
  t.bind(node, t.client(FN(cuGraphAddEmptyNode), &node.client, graph, nullptr, 0u),
         "cuGraphAddEmptyNode", "phGraphNode");
  return node;
}

// `add` calls the trial's function. `data` (optional) makes the dependency a call of its own.
template <typename Add>
void add_any(Trial& t, const CUgraphEdgeData* data, Add add) {
  const Both<CUgraph> graph = new_graph(t);
  const Both<CUgraphNode> before = data != nullptr ? kernel_node(t, graph) : empty_node(t, graph);
  const Node node(t);
  CUgraphNodeParams any = any_of(node.both.client);
  Both<CUgraphNode> made;
  const Seen seen =
      t.client_call([&] { return add(&made.client, graph.client, &before.client, 1, &any); });
  t.bind(made, seen, "cuGraphAddKernelNode_v2", "phGraphNode");
  t.expect_same(seen, t.direct_call([&] {
    CUgraphNode added = nullptr;
    const bool joined = data == nullptr;
    CUresult result =
        t.call_direct(FN(cuGraphAddKernelNode_v2), &added, graph, joined ? &before.driver : nullptr,
                      joined ? 1u : 0u, &node.both.driver);
    if (joined) return result;
    return t.call_direct(FN(cuGraphAddDependencies_v2), graph, &before.driver, &made.driver, data,
                         1u);
  }));
  const CUDA_MEMSET_NODE_PARAMS fill = fill_of(t);
  any = any_of(fill, t.context().client);
  CUgraphNode added = nullptr;
  t.expect_same(
      t.client_call([&] { return add(&added, graph.client, nullptr, 0, &any); }),
      t.direct(FN(cuGraphAddMemsetNode), &added, graph, nullptr, 0u, &fill, t.context().driver));
}

// The graph moves with the dependencies and their data in one call.
void move_graph(Trial& t) {
  const Both<CUgraph> graph = new_graph(t);
  const Both<CUgraphNode> before = kernel_node(t, graph);
  Both<CUgraph> child;
  t.bind(child, t.client(FN(cuGraphCreate), &child.client, 0u), "cuGraphCreate", "phGraph");
  CUgraphEdgeData edge{};
  edge.from_port = static_cast<unsigned char>(2 * t.draw(0, 1));
  Both<CUgraphNodeParams> any{};
  any.client.type = CU_GRAPH_NODE_TYPE_GRAPH;
  any.client.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  any.driver = any.client;
  any.client.graph.graph = child.client, any.driver.graph.graph = child.driver;
  CUgraphNode added = nullptr;
  t.expect_same(
      t.client(FN(cuGraphAddNode_v2), &added, graph, &before.client, &edge, 1u, &any.client),
      t.direct(FN(cuGraphAddNode_v2), &added, graph, &before.driver, &edge, 1u, &any.driver));
}

void add_any_node_trials(TrialTable& table) {
  table.translated("cuGraphAddNode", kTyped, [](Trial& t) {
    add_any(t, nullptr,
            [&t](CUgraphNode* out, CUgraph graph, const CUgraphNode* behind, std::size_t count,
                 CUgraphNodeParams* any) {
              return t.call_client(FN(cuGraphAddNode), out, graph, behind, count, any);
            });
  });
  static constexpr CUgraphEdgeData kEarly = {1, 0, 1, {}};
  static const CUgraphEdgeData* const kDatas[] = {nullptr, &kEarly};
  table.translated("cuGraphAddNode_v2", kTyped, [](Trial& t) {
    const CUgraphEdgeData* const data = kDatas[t.draw(0, 1)];
    add_any(t, data,
            [&t, data](CUgraphNode* out, CUgraph graph, const CUgraphNode* behind,
                       std::size_t count, CUgraphNodeParams* any) {
              return t.call_client(FN(cuGraphAddNode_v2), out, graph, behind, data, count, any);
            });
    move_graph(t);
  });
  table.translated("cuGraphAddNode_v3", kTyped, [](Trial& t) {
    const CUgraphEdgeData* const data = kDatas[t.draw(0, 1)];
    add_any(t, data,
            [&t, data](CUgraphNode* out, CUgraph graph, const CUgraphNode* behind,
                       std::size_t count, CUgraphNodeParams* any) {
              return t.call_client(FN(cuGraphAddNode_v3), out, graph, behind, data, count, any);
            });
  });
  const auto set = [](Trial& t, auto call) {
    const Both<CUgraph> graph = new_graph(t);
    const Both<CUgraphNode> node = kernel_node(t, graph);
    const Node parameters(t);
    CUgraphNodeParams any = any_of(parameters.both.client);
    t.expect_same(t.client_call([&] { return call(node.client, &any); }),
                  t.direct(FN(cuGraphKernelNodeSetParams_v2), node, &parameters.both.driver));
  };
  table.translated("cuGraphNodeSetParams", kTyped, [set](Trial& t) {
    set(t, [&t](CUgraphNode node, CUgraphNodeParams* any) {
      return t.call_client(FN(cuGraphNodeSetParams), node, any);
    });
  });
  table.translated("cuGraphNodeSetParams_v2", kTyped, [set](Trial& t) {
    set(t, [&t](CUgraphNode node, CUgraphNodeParams* any) {
      return t.call_client(FN(cuGraphNodeSetParams_v2), node, any);
    });
  });
  table.translated("cuGraphExecNodeSetParams", kTyped, [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Both<CUgraphNode> node = kernel_node(t, graph);
    Both<CUgraphExec> exec;
    t.bind(exec, t.client(FN(cuGraphInstantiateWithFlags), &exec.client, graph, 0ull),
           "cuGraphInstantiateWithFlags", "phGraphExec");
    t.at_end([&t, exec] { (void)t.call_client(FN(cuGraphExecDestroy), exec); });
    const Node parameters(t);
    CUgraphNodeParams any = any_of(parameters.both.client);
    t.expect_same(
        t.client(FN(cuGraphExecNodeSetParams), exec, node, &any),
        t.direct(FN(cuGraphExecKernelNodeSetParams_v2), exec, node, &parameters.both.driver));
  });
}

// As a program of CUDA 11 gives it: without a library's kernel and a context.
struct OlderNode {
  Both<CUDA_KERNEL_NODE_PARAMS_v1> older{};
  Both<CUDA_KERNEL_NODE_PARAMS> newer{};
  AddArguments arguments;

  explicit OlderNode(Trial& t) : arguments(t) {
    CUDA_KERNEL_NODE_PARAMS_v1 node{};
    node.gridDimX = static_cast<unsigned>(t.draw(1, 1000));
    node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = static_cast<unsigned>(t.draw(1, 10));
    node.blockDimY = node.blockDimZ = 1;
    node.sharedMemBytes = static_cast<unsigned>(t.draw(0, 49152));
    node.kernelParams = arguments.pointers();
    const Both<CUfunction> function = function_of(t, new_module(t), "add");
    older = {node, node};
    older.client.func = function.client, older.driver.func = function.driver;
    std::memcpy(&newer.driver, &older.driver, sizeof older.driver);
  }
  OlderNode(const OlderNode&) = delete;
};

constexpr char kNewer[] = "the current structure of kernel nodes";

void add_older_trials(TrialTable& table) {
  table.translated("cuGraphAddKernelNode", kNewer, [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Both<CUgraphNode> before = empty_node(t, graph);
    const OlderNode node(t);
    CUgraphNode added = nullptr;
    t.expect_same(
        t.client(FN(cuGraphAddKernelNode), &added, graph, &before.client, 1u, &node.older.client),
        t.direct(FN(cuGraphAddKernelNode_v2), &added, graph, &before.driver, 1u,
                 &node.newer.driver));
  });
  table.translated("cuGraphKernelNodeSetParams", kNewer, [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Both<CUgraphNode> node = kernel_node(t, graph);
    const OlderNode parameters(t);
    t.expect_same(t.client(FN(cuGraphKernelNodeSetParams), node, &parameters.older.client),
                  t.direct(FN(cuGraphKernelNodeSetParams_v2), node, &parameters.newer.driver));
  });
  table.translated("cuGraphExecKernelNodeSetParams", kNewer, [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Both<CUgraphNode> node = kernel_node(t, graph);
    Both<CUgraphExec> exec;
    t.bind(exec, t.client(FN(cuGraphInstantiateWithFlags), &exec.client, graph, 0ull),
           "cuGraphInstantiateWithFlags", "phGraphExec");
    t.at_end([&t, exec] { (void)t.call_client(FN(cuGraphExecDestroy), exec); });
    const OlderNode parameters(t);
    t.expect_same(
        t.client(FN(cuGraphExecKernelNodeSetParams), exec, node, &parameters.older.client),
        t.direct(FN(cuGraphExecKernelNodeSetParams_v2), exec, node, &parameters.newer.driver));
  });
}

// The worker's own destructor, with an object of its own.
constexpr char kObject[] = "an object with the worker's destructor, which notifies the client";

void add_object_trials(TrialTable& table) {
  table.translated("cuUserObjectCreate", kObject, [](Trial& t) {
    CUuserObject made = nullptr;
    const auto references = static_cast<unsigned>(t.draw(1, 9));
    const auto nothing = [](void*) {};
    const CUhostFn end = nothing;
    const auto flags = static_cast<unsigned>(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    const Seen seen = t.client(FN(cuUserObjectCreate), &made, &t, end, references, flags);
    t.expect_same(seen, t.direct(FN(cuUserObjectCreate), &made, static_cast<void*>(&made), end,
                                 references, flags));
  });
  table.translated(
      "cuGraphInstantiateWithParams", "no upload, which is a call of its own", [](Trial& t) {
        const Both<CUgraph> graph = new_graph(t);
        CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
        parameters.flags = t.draw(0, 1) * CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        Both<CUgraphExec> exec;
        CUDA_GRAPH_INSTANTIATE_PARAMS given = parameters;
        const Seen seen = t.client(FN(cuGraphInstantiateWithParams), &exec.client, graph, &given);
        CUgraphExec directly = nullptr;
        t.expect_same(seen,
                      t.direct(FN(cuGraphInstantiateWithParams), &directly, graph, &parameters));
        t.bind(exec, seen, "cuGraphInstantiateWithParams", "phGraphExec");
        t.at_end([&t, exec] { (void)t.call_client(FN(cuGraphExecDestroy), exec); });
      });
}

}  // namespace

void add_graph_trials(TrialTable& table) {
  add_any_node_trials(table);
  add_older_trials(table);
  add_object_trials(table);
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
