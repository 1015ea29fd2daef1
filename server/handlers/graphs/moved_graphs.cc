// Moved graphs: child graphs that move into their node (protocol/calls/graph_parameters.h). The
// client keeps the handles of the graph and of its nodes. They end with the node.
#include <cstring>
#include <vector>

#include "protocol/calls/graph_parameters.h"
#include "server/handlers/graphs/driver_nodes.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/graphs/graph_topology.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using protocol::GraphMovePayload;

// The requested node. Copied, then checked.
struct Wanted {
  GraphMovePayload node;
  CUgraph graph = nullptr;
  CUgraph child = nullptr;
  std::vector<CUgraphNode> dependencies;
  std::vector<CUgraphEdgeData> edges;

  int read(Call& call);
};

int Wanted::read(Call& call) {
  ByteView rest = call.payload();
  if (call.header().form != protocol::Form::kRaw || rest.size() < sizeof node) {
    return kErrorInvalidValue;
  }
  std::memcpy(&node, rest.data(), sizeof node);
  rest = rest.subspan(sizeof node);
  const std::size_t count = node.dependency_count;
  if (count > limits::kArrayCountMax ||
      rest.size() != count * (sizeof(std::uint64_t) + sizeof(CUgraphEdgeData))) {
    return kErrorInvalidValue;
  }
  int result = find_graph(call, node.graph, &graph);
  if (result == 0) result = find_graph(call, node.child, &child);
  if (result != 0) return result;
  const std::size_t handle_bytes = count * sizeof(std::uint64_t);
  result = find_nodes(call, rest.first(handle_bytes), &dependencies);
  if (result != 0) return result;
  rest = rest.subspan(handle_bytes);
  edges.resize(count);
  if (!rest.empty()) std::memcpy(edges.data(), rest.data(), rest.size());
  return 0;
}

int add(Call& call, const Wanted& wanted) {
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph.graph = wanted.child;
  parameters.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  CUgraphNode added = nullptr;
  int result = GPURUN_DRIVER(HandlerState::of(call).driver(), cuGraphAddNode_v2, &added,
                             wanted.graph, wanted.dependencies.data(), wanted.edges.data(),
                             wanted.dependencies.size(), &parameters);
  if (result != 0) return result;
  result = call.handles().bind(wanted.node.node, HandleKind::kGraphNode,
                               reinterpret_cast<std::uintptr_t>(added), wanted.node.graph);
  if (result == 0) call.handles().give(wanted.node.child, wanted.node.node);
  return result;
}

CallOutcome run_add(Call& call) {
  Wanted wanted;
  int result = wanted.read(call);
  if (wanted.node.node != 0) call.set_created(wanted.node.node);
  if (result == 0) result = add(call, wanted);
  return end_addition(call, wanted.node.node, wanted.node.graph, result);
}

}  // namespace

void add_moved_graph_handlers(Handlers& handlers) {
  set_handler(handlers, "cuGraphAddNode_v2", &run_add);
}

}  // namespace gpurun::server
