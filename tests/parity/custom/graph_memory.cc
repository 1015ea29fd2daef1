// Nodes of graphs that allocate memory: the properties, the devices with access, and the
// dependencies. Each side's node has memory of its own.
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

CUmemLocation first_device() {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return location;
}

// A node with drawn properties, made through the client library.
struct Node {
  CUmemAccessDesc access{};
  CUDA_MEM_ALLOC_NODE_PARAMS given{};
  Both<CUgraphNode> node;
  Seen seen;

  Node(Trial& t, const Both<CUgraph>& graph, const CUgraphNode* behind, std::size_t count) {
    access.location = first_device();
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    given.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    given.poolProps.location = first_device();
    given.poolProps.maxSize = t.draw(0, 1) * (std::size_t{1} << 30);
    given.poolProps.usage = static_cast<unsigned short>(t.draw(0, 1));
    given.bytesize = t.draw(1, 1 << 20);
    given.accessDescCount = t.draw(0, 1);
    given.accessDescs = given.accessDescCount == 0 ? nullptr : &access;
    CUDA_MEM_ALLOC_NODE_PARAMS answered = given;
    seen = t.client(FN(cuGraphAddMemAllocNode), &node.client, graph, behind, count, &answered);
    t.bind(node, seen, "cuGraphAddMemAllocNode", "phGraphNode");
    given.dptr = answered.dptr;
  }
  Node(const Node&) = delete;
};

void expect_parameters(Trial& t, const CUDA_MEM_ALLOC_NODE_PARAMS& read, const Node& expected) {
  t.expect_value(read.dptr, expected.given.dptr);
  t.expect_value(read.bytesize, expected.given.bytesize);
  t.expect_value(read.poolProps.maxSize, expected.given.poolProps.maxSize);
  t.expect_value(read.poolProps.usage, expected.given.poolProps.usage);
  t.expect_value(static_cast<std::uint64_t>(read.poolProps.location.type),
                 static_cast<unsigned>(CU_MEM_LOCATION_TYPE_DEVICE));
  t.expect_value(read.accessDescCount, expected.given.accessDescCount);
  for (std::size_t i = 0; i < read.accessDescCount; ++i) {
    t.expect_value(static_cast<std::uint64_t>(read.accessDescs[i].flags),
                   static_cast<unsigned>(expected.access.flags));
  }
}

}  // namespace

void add_graph_memory_trials(TrialTable& table) {
  table.add("cuGraphAddMemAllocNode", [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    std::vector<CUgraphNode> client_nodes, driver_nodes;
    for (std::size_t i = t.draw(0, 3); i != 0; --i) {
      Both<CUgraphNode> node;
      t.bind(node, t.client(FN(cuGraphAddEmptyNode), &node.client, graph, nullptr, 0u),
             "cuGraphAddEmptyNode", "phGraphNode");
      client_nodes.push_back(node.client);
      driver_nodes.push_back(node.driver);
    }
    const Node made(t, graph, client_nodes.data(), client_nodes.size());
    CUgraphNode directly = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS given = made.given;
    t.expect_same(made.seen, t.direct(FN(cuGraphAddMemAllocNode), &directly, graph,
                                      driver_nodes.data(), driver_nodes.size(), &given));
    // The program has the address that the worker got from the device.
    CUDA_MEM_ALLOC_NODE_PARAMS read{};
    EXPECT_EQ(t.call_direct(FN(cuGraphMemAllocNodeGetParams), made.node, &read), CUDA_SUCCESS);
    expect_parameters(t, read, made);
  });
  table.add("cuGraphMemAllocNodeGetParams", [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Node made(t, graph, nullptr, 0);
    Both<CUDA_MEM_ALLOC_NODE_PARAMS> read{};
    t.same(FN(cuGraphMemAllocNodeGetParams), made.node, out(read));
    expect_parameters(t, read.client, made);
    expect_parameters(t, read.driver, made);
  });
}

}  // namespace gpurun::parity
