// Conditional node: the handles of its bodies are minted here, like those of other graphs.
#include "client/interpose/entry/conditional_node.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "client/interpose/call/forward.h"
#include "client/interpose/capture/graph_nodes.h"
#include "client/interpose/capture/node_memory.h"
#include "protocol/calls/graph_conditional.h"

namespace gpurun::client::interpose {
namespace {

using protocol::GraphConditionalPayload;
using Bodies = std::vector<CUgraph>;

NodeMemory<Bodies>& kept_bodies() {
  static auto* const all = new NodeMemory<Bodies>;
  return *all;
}

int read(const EntryContext& here, CUgraph graph, const CUgraphNode* dependencies,
         std::size_t count, const CUDA_CONDITIONAL_NODE_PARAMS& given,
         GraphConditionalPayload* payload, std::vector<Handle>* behind) {
  if (given.size == 0 || given.size > limits::kArrayCountMax) return CUDA_ERROR_INVALID_VALUE;
  payload->graph = handle_of(graph);
  payload->conditional = given.handle;
  payload->context = handle_of(given.ctx);
  payload->type = static_cast<std::uint32_t>(given.type);
  payload->body_count = given.size;
  payload->dependency_count = static_cast<std::uint32_t>(count);
  int result = here.check(payload->graph, HandleKind::kGraph);
  if (result == 0 && payload->context != 0) {
    result = here.check(payload->context, HandleKind::kContext);
  }
  for (std::size_t i = 0; i < count && result == 0; ++i) {
    behind->push_back(handle_of(dependencies[i]));
    result = here.check(behind->back(), HandleKind::kGraphNode);
  }
  if (result != 0) return result;
  const Sound sound = check_dependencies(here.handles(), payload->graph, *behind);
  return sound == Sound::kWrong ? int{CUDA_ERROR_INVALID_VALUE} : 0;
}

int send(const EntryContext& here, const GraphConditionalPayload& payload,
         const std::vector<Handle>& behind, const Bodies& bodies) {
  CallSite site = here.passing_site();
  site.opcode = opcode::cuGraphAddNode;
  site.form = protocol::Form::kRaw;
  const ByteView parts[] = {bytes_of(payload),
                            byte_view(behind.data(), behind.size() * sizeof(Handle)),
                            byte_view(bodies.data(), bodies.size() * sizeof(CUgraph))};
  Reply reply;
  reply.result = -1;  // Not answered.
  const int result = here.session().call(*here.lane, site, parts, &reply);
  // The result may be an earlier call's failure although this call has done its work.
  if (reply.result == 0) return 0;
  return result != 0 ? result : int{CUDA_ERROR_UNKNOWN};
}

}  // namespace

CUgraph* bodies_of_node(const HandleTable& handles, Handle node, Bodies bodies) {
  const Bodies& kept =
      kept_bodies().keep(handles, node, std::make_unique<Bodies>(std::move(bodies)));
  return const_cast<CUgraph*>(kept.data());
}

int add_conditional_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                         std::size_t count, CUDA_CONDITIONAL_NODE_PARAMS* parameters) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return result;
  if (here.enter_context() != 0) here.context = nullptr;
  GraphConditionalPayload payload;
  std::vector<Handle> behind;
  int result = read(here, graph, dependencies, count, *parameters, &payload, &behind);
  if (result != 0) return result;
  Bodies bodies;
  payload.node = mint_node(here.handles(), payload.graph, 0);
  for (unsigned i = 0; i < payload.body_count; ++i) {
    const Handle body = here.handles().mint(HandleKind::kGraph, 0, nullptr);
    bodies.push_back(as<CUgraph>(body));
    if (body != 0) own_handle(here.handles(), payload.node, body);
  }
  note_conditional_node();
  const bool minted =
      payload.node != 0 && std::find(bodies.begin(), bodies.end(), nullptr) == bodies.end();
  result = minted ? send(here, payload, behind, bodies) : int{CUDA_ERROR_OUT_OF_MEMORY};
  if (result != 0) {
    here.handles().retire(payload.node);
    for (const CUgraph body : bodies) here.handles().retire(handle_of(body));
    return result;
  }
  parameters->phGraph_out = bodies_of_node(here.handles(), payload.node, std::move(bodies));
  *out = as<CUgraphNode>(payload.node);
  return 0;
}

}  // namespace gpurun::client::interpose
