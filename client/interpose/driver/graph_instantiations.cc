// Graph instantiations: instantiation by parameters, and updates of executables. Both answer with
// nodes of the graph (CUDA Driver API manual, "Graph Management").
#include <array>
#include <cstring>

#include "client/interpose/call/forward.h"
#include "client/interpose/capture/exec_changes.h"
#include "client/interpose/capture/graph_nodes.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "protocol/calls/graph_host.h"

namespace gpurun::client::interpose {
namespace {

using protocol::GraphInstantiation;
using protocol::GraphInstantiationReply;
using protocol::GraphUpdatePayload;
using protocol::GraphUpdateReply;

// A handle for a node of the answer that has none yet. Retired at the end unless it came back.
class Spare {
 public:
  explicit Spare(HandleTable& handles)
      : handles_(handles), handle_(handles.mint(HandleKind::kGraphNode, 0, nullptr)) {}
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;
  ~Spare() {
    if (handle_ != 0 && !used_) handles_.retire(handle_);
  }
  Handle handle() const { return handle_; }
  // The node may be inside a node of `graph`, and ends with that.
  CUgraphNode returned(std::uint64_t node, Handle graph) {
    if (node != 0 && node == handle_ && !used_) {
      used_ = true;
      own_handle(handles_, graph, handle_);
    }
    return as<CUgraphNode>(node);
  }

 private:
  HandleTable& handles_;
  const Handle handle_;  // 0: there are no handles. The answer then names no new node.
  bool used_ = false;
};

int enter(EntryContext& here) {
  if (const int result = here.enter(); result != 0) return result;
  if (here.enter_context() != 0) here.context = nullptr;
  return 0;
}

int update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  EntryContext here;
  if (const int result = enter(here); result != 0) return result;
  GraphUpdatePayload payload;
  payload.exec = handle_of(exec);
  payload.graph = handle_of(graph);
  int result = here.check(payload.exec, HandleKind::kGraphExec);
  if (result == 0) result = here.check(payload.graph, HandleKind::kGraph);
  if (result != 0) return result;
  Spare node(here.handles()), from_node(here.handles());
  payload.spares[0] = node.handle();
  payload.spares[1] = from_node.handle();
  forget_changes(payload.exec);
  CallSite site = exec_site(here, payload.exec);
  site.opcode = opcode::cuGraphExecUpdate_v2;
  site.form = protocol::Form::kRaw;
  Reply reply;
  result = here.session().call(*here.lane, site, bytes_of(payload), &reply);
  GraphUpdateReply said;
  if (reply.payload.size() != sizeof said) return result;
  std::memcpy(&said, reply.payload.data(), sizeof said);
  *info = CUgraphExecUpdateResultInfo{};
  info->result = static_cast<CUgraphExecUpdateResult>(said.result);
  info->errorNode = node.returned(said.node, payload.graph);
  info->errorFromNode = from_node.returned(said.from_node, payload.graph);
  return result;
}

// The upload is a call of its own, so that it has its place in its stream.
int upload(const EntryContext& here, Handle exec, CUstream given) {
  Handle stream = 0;
  if (const int result = resolve_stream(here, given, &stream); result != 0) return result;
  CallSite site = here.stream_site(stream);
  site.opcode = opcode::cuGraphUpload;
  return post_row(here, opcode::cuGraphUpload, site, {}, exec, stream);
}

int instantiate(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* given) {
  given->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  given->hErrNode_out = nullptr;
  EntryContext here;
  if (const int result = enter(here); result != 0) return result;
  const bool uploads = (given->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  if (uploads && here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  GraphInstantiation payload;
  payload.graph = handle_of(graph);
  payload.flags = given->flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
  int result = here.check(payload.graph, HandleKind::kGraph);
  Handle stream = 0;
  if (result == 0 && uploads) result = resolve_stream(here, given->hUploadStream, &stream);
  if (result != 0) return result;
  payload.exec = here.handles().mint(HandleKind::kGraphExec, 0, nullptr);
  if (payload.exec == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Spare node(here.handles());
  payload.spare = node.handle();
  CallSite site = here.passing_site();
  site.opcode = opcode::cuGraphInstantiateWithParams;
  site.form = protocol::Form::kRaw;
  Reply reply;
  reply.result = -1;  // Not answered.
  result = here.session().call(*here.lane, site, bytes_of(payload), &reply);
  GraphInstantiationReply said;
  if (reply.payload.size() == sizeof said) {
    std::memcpy(&said, reply.payload.data(), sizeof said);
    given->result_out = static_cast<CUgraphInstantiateResult>(said.result);
    given->hErrNode_out = node.returned(said.node, payload.graph);
  }
  // The result may be an earlier call's failure although this call has done its work.
  if (reply.result != 0) {
    here.handles().retire(payload.exec);
    return result != 0 ? result : int{CUDA_ERROR_UNKNOWN};
  }
  *out = as<CUgraphExec>(payload.exec);
  if (uploads) (void)upload(here, payload.exec, given->hUploadStream);
  return result;
}

}  // namespace

namespace custom {

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  if (resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return cuda(update(hGraphExec, hGraph, resultInfo));
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (phGraphExec == nullptr || instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return cuda(instantiate(phGraphExec, hGraph, instantiateParams));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
