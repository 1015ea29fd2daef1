// Conditional nodes: nodes that run graphs of their own (protocol/calls/graph_conditional.h). The
// driver makes these graphs, and the client has minted their handles.
#include <cstring>
#include <vector>

#include "protocol/calls/graph_conditional.h"
#include "server/handlers/graphs/driver_nodes.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using protocol::GraphConditionalPayload;

// The requested node. Copied, then checked.
struct Wanted {
  GraphConditionalPayload node;
  CUgraph graph = nullptr;
  CUcontext context = nullptr;
  std::vector<CUgraphNode> dependencies;
  std::vector<std::uint64_t> bodies;

  int read(Call& call);
};

int Wanted::read(Call& call) {
  ByteView rest = call.payload();
  if (call.header().form != protocol::Form::kRaw || rest.size() < sizeof node) {
    return kErrorInvalidValue;
  }
  std::memcpy(&node, rest.data(), sizeof node);
  rest = rest.subspan(sizeof node);
  if (node.dependency_count > limits::kArrayCountMax || node.body_count == 0 ||
      node.body_count > limits::kArrayCountMax ||
      rest.size() != (std::size_t{node.dependency_count} + node.body_count) * 8) {
    return kErrorInvalidValue;
  }
  int result = find_graph(call, node.graph, &graph);
  if (result != 0) return result;
  if (node.context != 0) {
    const HandleTable::Found found = call.handles().find(node.context, HandleKind::kContext);
    if (found.result != 0) return found.result;
    context = driver_object<CUcontext>(found.value);
  }
  const std::size_t handle_bytes = std::size_t{node.dependency_count} * sizeof(std::uint64_t);
  result = find_nodes(call, rest.first(handle_bytes), &dependencies);
  if (result != 0) return result;
  rest = rest.subspan(handle_bytes);
  bodies.resize(node.body_count);
  std::memcpy(bodies.data(), rest.data(), rest.size());
  return 0;
}

int add(Call& call, const Wanted& wanted) {
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.handle = wanted.node.conditional;
  parameters.conditional.type = static_cast<CUgraphConditionalNodeType>(wanted.node.type);
  parameters.conditional.size = wanted.node.body_count;
  parameters.conditional.ctx = wanted.context;
  CUgraphNode added = nullptr;
  int result = GPURUN_DRIVER(HandlerState::of(call).driver(), cuGraphAddNode, &added, wanted.graph,
                             wanted.dependencies.data(), wanted.dependencies.size(), &parameters);
  if (result != 0) return result;
  const CUgraph* const made = parameters.conditional.phGraph_out;
  if (made == nullptr) return kErrorNotSupported;
  for (std::size_t i = 0; i < wanted.bodies.size() && result == 0; ++i) {
    result = call.handles().bind(wanted.bodies[i], HandleKind::kGraph,
                                 reinterpret_cast<std::uintptr_t>(made[i]), wanted.node.node);
  }
  if (result != 0) return result;
  return call.handles().bind(wanted.node.node, HandleKind::kGraphNode,
                             reinterpret_cast<std::uintptr_t>(added), wanted.node.graph);
}

CallOutcome run_add(Call& call) {
  Wanted wanted;
  int result = wanted.read(call);
  if (wanted.node.node != 0) call.set_created(wanted.node.node);
  if (result == 0) result = add(call, wanted);
  return CallOutcome::done(result);
}

}  // namespace

void add_conditional_node_handlers(Handlers& handlers) {
  set_handler(handlers, "cuGraphAddNode", &run_add);
}

}  // namespace gpurun::server
