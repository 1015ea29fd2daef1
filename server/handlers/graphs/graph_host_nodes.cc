// Graph host nodes: the handlers of nodes with work in the client, and of copies as nodes
// (protocol/calls/graph_host.h).
#include <cstring>

#include "driver_abi/opcodes.h"
#include "protocol/calls/graph_host.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/graphs/graph_hosts.h"
#include "server/handlers/graphs/graph_topology.h"
#include "server/handlers/graphs/node_additions.h"
#include "server/handlers/graphs/node_changes.h"
#include "server/handlers/graphs/wanted_node.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

namespace opcode = driver_abi::opcode;
using protocol::GraphHostStep;
using protocol::GraphNodePayload;
using protocol::GraphTurnPayload;

int take_turn_answer(Call& call) {
  GraphTurnPayload turn;
  if (call.payload().size() < sizeof turn) return kErrorInvalidValue;
  std::memcpy(&turn, call.payload().data(), sizeof turn);
  GraphHosts& hosts = HandlerState::of(call).graph_hosts();
  if (turn.step == GraphHostStep::kBytes) {
    return hosts.bytes(turn.turn, turn.offset, call.payload().subspan(sizeof turn));
  }
  if (turn.step != GraphHostStep::kDone) return kErrorInvalidValue;
  hosts.done(turn.turn);
  return 0;
}

CallOutcome run_node(Call& call, bool adds) {
  WantedNode wanted(call);
  wanted.hosts.set_executor(call.executor(), call.driver_context());
  int result = wanted.read();
  if (adds && wanted.node.node != 0) call.set_created(wanted.node.node);
  if (result == 0) {
    const bool captures = call.header().order == protocol::Order::kStream;
    result = !adds ? change_node(wanted) : captures ? capture_node(wanted) : add_node(wanted);
  }
  if (result != 0 && !wanted.begun && wanted.has_operation()) {
    wanted.hosts.tell_gone(wanted.node.operation);
  }
  if (result != 0 && adds && wanted.node.node != 0 && !call.awaited()) {
    (void)call.handles().poison(wanted.node.node, HandleKind::kGraphNode, result,
                                wanted.node.graph);
  }
  return CallOutcome::done(result);
}

CallOutcome run_add(Call& call) {
  if (call.header().form != protocol::Form::kRaw) return CallOutcome::done(kErrorInvalidValue);
  GraphHostStep step{};
  if (call.payload().size() >= sizeof step) std::memcpy(&step, call.payload().data(), sizeof step);
  if (step != GraphHostStep::kNode) return CallOutcome::done(take_turn_answer(call));
  return run_node(call, true);
}

CallOutcome run_set(Call& call) {
  if (call.header().form != protocol::Form::kRaw) return CallOutcome::done(kErrorInvalidValue);
  return run_node(call, false);
}

// For a row of the generic path with a driver function that GraphTopology replaces.
CallOutcome run_shape(Call& call) {
  HandlerState& state = HandlerState::of(call);
  const GraphTopology::Scope scope(state.graph_topology(), call);
  return state.dispatch().run(call);
}

}  // namespace

void refuse_graph_node(Call& call, int result) {
  const std::uint16_t code = call.header().opcode;
  if (code == opcode::cuUserObjectCreate) return refuse_user_object(call, result);
  const bool adds = code == opcode::cuGraphAddHostNode || code == opcode::cuGraphAddMemcpyNode;
  const bool sets = code == opcode::cuGraphHostNodeSetParams ||
                    code == opcode::cuGraphMemcpyNodeSetParams ||
                    code == opcode::cuGraphExecHostNodeSetParams ||
                    code == opcode::cuGraphExecMemcpyNodeSetParams;
  GraphNodePayload node;
  if ((!adds && !sets) || call.payload().size() < sizeof node) return;
  std::memcpy(&node, call.payload().data(), sizeof node);
  if (node.step != GraphHostStep::kNode) return;
  GraphHosts& hosts = HandlerState::of(call).graph_hosts();
  hosts.set_executor(call.executor(), call.driver_context());
  hosts.tell_gone(node.operation);
  if (!adds || node.node == 0) return;
  if (call.awaited()) return;
  call.set_created(node.node);
  (void)call.handles().poison(node.node, HandleKind::kGraphNode, result, node.graph);
}

void add_graph_host_handlers(Handlers& handlers) {
  for (const char* symbol : {"cuGraphAddHostNode", "cuGraphAddMemcpyNode"}) {
    set_handler(handlers, symbol, &run_add);
  }
  for (const char* symbol : {"cuGraphHostNodeSetParams", "cuGraphMemcpyNodeSetParams",
                             "cuGraphExecHostNodeSetParams", "cuGraphExecMemcpyNodeSetParams"}) {
    set_handler(handlers, symbol, &run_set);
  }
  for (const driver_abi::Row& row : driver_abi::rows()) {
    if (GraphTopology::substitute(row.opcode) == nullptr) continue;
    set_handler(handlers, row.symbol, &run_shape);
  }
}

}  // namespace gpurun::server
