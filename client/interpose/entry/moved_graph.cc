// Moved graph: one call that the worker's driver gets as it is.
#include "client/interpose/entry/moved_graph.h"

#include <vector>

#include "client/interpose/capture/exec_changes.h"
#include "client/interpose/capture/graph_nodes.h"
#include "protocol/calls/graph_parameters.h"

namespace gpurun::client::interpose {
namespace {

using protocol::GraphMovePayload;

// `*done`: the node was added, whatever failure of an earlier call is returned.
int send(const EntryContext& here, const GraphMovePayload& payload,
         const std::vector<Handle>& behind, const std::vector<CUgraphEdgeData>& edges, bool* done) {
  CallSite site = here.passing_site();
  site.opcode = opcode::cuGraphAddNode_v2;
  site.form = protocol::Form::kRaw;
  const ByteView parts[] = {bytes_of(payload),
                            byte_view(behind.data(), behind.size() * sizeof(Handle)),
                            byte_view(edges.data(), edges.size() * sizeof(CUgraphEdgeData))};
  Reply reply;
  reply.result = -1;  // Not answered.
  const int result = here.session().call(*here.lane, site, parts, &reply);
  *done = reply.result == 0;
  return *done || result != 0 ? result : int{CUDA_ERROR_UNKNOWN};
}

}  // namespace

int add_moved_graph(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                    const CUgraphEdgeData* edges, std::size_t count, CUgraph child) {
  EntryContext here;
  int result = here.enter();
  if (result != 0) return result;
  if (here.enter_context() != 0) here.context = nullptr;
  GraphMovePayload payload;
  payload.graph = handle_of(graph);
  payload.child = handle_of(child);
  payload.dependency_count = static_cast<std::uint32_t>(count);
  result = here.check(payload.graph, HandleKind::kGraph);
  if (result == 0) result = here.check(payload.child, HandleKind::kGraph);
  std::vector<Handle> behind;
  for (std::size_t i = 0; i < count && result == 0; ++i) {
    behind.push_back(handle_of(dependencies[i]));
    result = here.check(behind.back(), HandleKind::kGraphNode);
  }
  if (result != 0) return result;
  if (is_moved(here.handles(), payload.child) ||
      check_dependencies(here.handles(), payload.graph, behind) == Sound::kWrong) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<CUgraphEdgeData> data(count);
  if (edges != nullptr) data.assign(edges, edges + count);
  // Posted changes of executables may use the graph, which ends with another one from now on.
  note_nested_graph();
  result = end_of_graph_part(here, payload.child);
  if (result != 0) return result;
  payload.node = mint_node(here.handles(), payload.graph, 0);
  if (payload.node == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  bool done = false;
  result = send(here, payload, behind, data, &done);
  if (!done) {
    here.handles().retire(payload.node);
    return result;
  }
  note_moved(here.handles(), payload.child, payload.node);
  *out = as<CUgraphNode>(payload.node);
  return result;
}

}  // namespace gpurun::client::interpose
