// Any node reader: the parameters of a graph node of any type (cuGraphNodeGetParams, CUDA 13.2).
// The function of the node's type returns them. The worker adds what no such function returns.
#include <cstring>
#include <vector>

#include "client/interpose/call/forward.h"
#include "client/interpose/call/refusals.h"
#include "client/interpose/custom.h"
#include "client/interpose/entry/conditional_node.h"
#include "client/interpose/entry/run_row.h"
#include "protocol/calls/graph_parameters.h"

namespace gpurun::client::interpose {
namespace {

using protocol::GraphNodeFacts;

int ask(EntryContext& here, CUgraphNode node, GraphNodeFacts* facts, std::vector<CUgraph>* bodies) {
  int result = here.enter();
  if (result != 0) return result;
  if (here.enter_context() != 0) here.context = nullptr;
  const std::uint64_t handle = handle_of(node);
  result = here.check(handle, HandleKind::kGraphNode);
  if (result != 0) return result;
  CallSite site = here.passing_site();
  site.opcode = opcode::cuGraphNodeGetParams;
  site.form = protocol::Form::kRaw;
  Reply reply;
  reply.result = -1;  // Not answered.
  result = here.session().call(*here.lane, site, bytes_of(handle), &reply);
  if (result != 0) return result;
  if (reply.payload.size() < sizeof *facts) return CUDA_ERROR_UNKNOWN;
  std::memcpy(facts, reply.payload.data(), sizeof *facts);
  const ByteView rest = ByteView(reply.payload).subspan(sizeof *facts);
  if (facts->body_count > limits::kArrayCountMax ||
      rest.size() != facts->body_count * sizeof(CUgraph)) {
    return CUDA_ERROR_UNKNOWN;
  }
  bodies->resize(facts->body_count);
  if (!rest.empty()) std::memcpy(bodies->data(), rest.data(), rest.size());
  for (const CUgraph body : *bodies) {
    if (here.check(handle_of(body), HandleKind::kGraph) != 0) return CUDA_ERROR_UNKNOWN;
  }
  return 0;
}

// The functions of a type return the older structure. Its members begin the newer one.
template <typename Old, typename New>
void take(const Old& read, New* out) {
  static_assert(sizeof read <= sizeof *out);
  std::memcpy(out, &read, sizeof read);
}

CUresult read_memset(CUgraphNode node, CUcontext context, CUDA_MEMSET_NODE_PARAMS_v2* out) {
  CUDA_MEMSET_NODE_PARAMS read{};
  const CUresult result = run_row(opcode::cuGraphMemsetNodeGetParams, node, &read);
  static_assert(sizeof read == offsetof(CUDA_MEMSET_NODE_PARAMS_v2, ctx));
  take(read, out);
  out->ctx = context;
  return result;
}

template <typename Old, typename New>
CUresult read_by(CUresult (*reader)(CUgraphNode, Old*), CUgraphNode node, New* out) {
  Old read{};
  const CUresult result = reader(node, &read);
  take(read, out);
  return result;
}

CUresult read(CUgraphNode node, CUcontext context, CUgraphNodeParams* out) {
  switch (out->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return read_by(&custom::cuGraphKernelNodeGetParams_v2, node, &out->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      out->memcpy.copyCtx = context;
      return custom::cuGraphMemcpyNodeGetParams(node, &out->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return read_memset(node, context, &out->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
      return read_by(&custom::cuGraphHostNodeGetParams, node, &out->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      out->graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID;
      return run_row(opcode::cuGraphChildGraphNodeGetGraph, node, &out->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return run_row(opcode::cuGraphEventWaitNodeGetEvent, node, &out->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return run_row(opcode::cuGraphEventRecordNodeGetEvent, node, &out->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return read_by(&custom::cuGraphMemAllocNodeGetParams, node, &out->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return run_row(opcode::cuGraphMemFreeNodeGetParams, node, &out->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return read_by(&custom::cuGraphBatchMemOpNodeGetParams, node, &out->memOp);
    default:
      return refuse_part(*driver_abi::find_row(opcode::cuGraphNodeGetParams),
                         "the parameters of a node of this type are not carried yet");
  }
}

}  // namespace

namespace custom {

CUresult cuGraphNodeGetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNodeFacts facts;
  std::vector<CUgraph> bodies;
  CUgraphNodeParams made{};
  {
    EntryContext here;
    if (const int result = ask(here, hNode, &facts, &bodies); result != 0) return cuda(result);
    made.type = static_cast<CUgraphNodeType>(facts.type);
    if (made.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      made.conditional.handle = facts.conditional;
      made.conditional.type = static_cast<CUgraphConditionalNodeType>(facts.conditional_type);
      made.conditional.size = facts.body_count;
      made.conditional.phGraph_out =
          bodies_of_node(here.handles(), handle_of(hNode), std::move(bodies));
      made.conditional.ctx = as<CUcontext>(facts.context);
    }
  }
  if (made.type != CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    const CUresult result = read(hNode, as<CUcontext>(facts.context), &made);
    if (result != CUDA_SUCCESS) return result;
  }
  *nodeParams = made;
  return CUDA_SUCCESS;
}

}  // namespace custom
}  // namespace gpurun::client::interpose
