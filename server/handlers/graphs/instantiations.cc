// Instantiations: instantiation by parameters, and updates of executables. Both answer with nodes
// of the graph (protocol/calls/graph_host.h).
#include <cstring>

#include "protocol/calls/graph_host.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/graphs/graph_topology.h"
#include "server/handlers/graphs/wanted_node.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

// The client's handle of a node that the driver returned: a known one, else `spare`, which is bound
// to it and ends with `graph`. 0: there is no node, or it can have no handle.
std::uint64_t name_node(Call& call, CUgraphNode node, std::uint64_t spare, std::uint64_t graph) {
  if (node == nullptr) return 0;
  const CUgraphNode shown = HandlerState::of(call).graph_topology().shown(node);
  const auto value = reinterpret_cast<std::uintptr_t>(shown);
  const std::uint64_t known = call.handles().client_handle_of(value, HandleKind::kGraphNode);
  if (known != 0 || spare == 0) return known;
  return call.handles().bind(spare, HandleKind::kGraphNode, value, graph) == 0 ? spare : 0;
}

template <typename T>
bool read(Call& call, T* wanted) {
  if (call.header().form != protocol::Form::kRaw || call.payload().size() != sizeof *wanted) {
    return false;
  }
  std::memcpy(wanted, call.payload().data(), sizeof *wanted);
  return true;
}

CallOutcome run_update(Call& call) {
  protocol::GraphUpdatePayload wanted;
  if (!read(call, &wanted)) return CallOutcome::done(kErrorInvalidValue);
  const HandleTable::Found exec = call.handles().find(wanted.exec, HandleKind::kGraphExec);
  if (exec.result != 0) return CallOutcome::done(exec.result);
  CUgraph graph = nullptr;
  const int wrong = find_graph(call, wanted.graph, &graph);
  if (wrong != 0) return CallOutcome::done(wrong);
  HandlerState& state = HandlerState::of(call);
  CUgraphExecUpdateResultInfo info{};
  const int result = GPURUN_DRIVER(state.driver(), cuGraphExecUpdate_v2,
                                   driver_object<CUgraphExec>(exec.value), graph, &info);
  // All nodes have the graph's work now.
  if (result == 0) state.graph_topology().execs().forget(driver_object<CUgraphExec>(exec.value));
  protocol::GraphUpdateReply reply;
  reply.result = static_cast<std::uint32_t>(info.result);
  reply.node = name_node(call, info.errorNode, wanted.spares[0], wanted.graph);
  reply.from_node = name_node(call, info.errorFromNode, wanted.spares[1], wanted.graph);
  call.set_reply(bytes_of(reply));
  return CallOutcome::done(result);
}

CallOutcome run_instantiate(Call& call) {
  protocol::GraphInstantiation wanted;
  if (!read(call, &wanted) || wanted.exec == 0 ||
      (wanted.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  call.set_created(wanted.exec);
  CUgraph graph = nullptr;
  int result = find_graph(call, wanted.graph, &graph);
  if (result != 0) return CallOutcome::done(result);
  const CudaDriver& driver = HandlerState::of(call).driver();
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.flags = wanted.flags;
  CUgraphExec made = nullptr;
  result = GPURUN_DRIVER(driver, cuGraphInstantiateWithParams, &made, graph, &parameters);
  if (result == 0) {
    result = call.handles().bind(wanted.exec, HandleKind::kGraphExec,
                                 reinterpret_cast<std::uintptr_t>(made));
    if (result != 0) (void)GPURUN_DRIVER(driver, cuGraphExecDestroy, made);
  }
  protocol::GraphInstantiationReply reply;
  reply.result = static_cast<std::uint32_t>(parameters.result_out);
  reply.node = name_node(call, parameters.hErrNode_out, wanted.spare, wanted.graph);
  call.set_reply(bytes_of(reply));
  return CallOutcome::done(result);
}

}  // namespace

void add_instantiation_handlers(Handlers& handlers) {
  set_handler(handlers, "cuGraphExecUpdate_v2", &run_update);
  set_handler(handlers, "cuGraphInstantiateWithParams", &run_instantiate);
}

}  // namespace gpurun::server
