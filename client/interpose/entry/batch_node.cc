// Batch nodes: memory operations as nodes of graphs (CUDA Driver API manual, "Graph Management").
// The worker's driver checks them, and each call waits for it.
#include <cstring>
#include <memory>
#include <vector>

#include "client/interpose/call/forward.h"
#include "client/interpose/capture/exec_changes.h"
#include "client/interpose/capture/graph_nodes.h"
#include "client/interpose/capture/node_memory.h"
#include "client/interpose/custom.h"
#include "client/interpose/entry/argument_rules.h"
#include "driver_abi/semantics/object_flags.h"
#include "protocol/calls/graph_parameters.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::kStreamMemoryOperationsMax;
using protocol::GraphBatchPayload;
using protocol::GraphBatchReply;

// The operations of a node that the program may read until the node ends or changes.
struct Operations {
  std::vector<CUstreamBatchMemOpParams> list;
  bool operator==(const Operations& other) const {
    return list.size() == other.list.size() &&
           std::memcmp(list.data(), other.list.data(), list.size() * sizeof list[0]) == 0;
  }
};
NodeMemory<Operations>& operations_of_nodes() {
  static auto* const all = new NodeMemory<Operations>;
  return *all;
}

// Graphs belong to no context, so a thread without one may build them.
int enter(EntryContext& here) {
  if (const int result = here.enter(); result != 0) return result;
  if (here.enter_context() != 0) here.context = nullptr;
  return 0;
}

int read(const EntryContext& here, const CUDA_BATCH_MEM_OP_NODE_PARAMS& given,
         GraphBatchPayload* payload) {
  payload->context = handle_of(given.ctx);
  if (payload->context != 0) {
    const int result = here.check(payload->context, HandleKind::kContext);
    if (result != 0) return result;
  }
  payload->flags = given.flags;
  payload->operation_count = given.count;
  const bool wrong =
      check_memory_operations(here, given.paramArray, given.count, given.flags) == Sound::kWrong;
  return wrong ? int{CUDA_ERROR_INVALID_VALUE} : 0;
}

// `*done`: the node was added or changed, whatever failure of an earlier call is returned.
int send(const EntryContext& here, CallSite site, std::uint16_t row,
         const GraphBatchPayload& payload, const std::vector<Handle>& behind,
         const CUDA_BATCH_MEM_OP_NODE_PARAMS& given, bool* done) {
  site.opcode = row;
  site.form = protocol::Form::kRaw;
  const ByteView parts[] = {
      bytes_of(payload), byte_view(behind.data(), behind.size() * sizeof(Handle)),
      byte_view(given.paramArray, given.count * sizeof(CUstreamBatchMemOpParams))};
  Reply reply;
  reply.result = -1;  // Not answered.
  const int result = here.session().call(*here.lane, site, parts, &reply);
  *done = reply.result == 0;
  return result;
}

int add(const EntryContext& here, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
        std::size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS& given) {
  GraphBatchPayload payload;
  payload.graph = handle_of(graph);
  payload.dependency_count = static_cast<std::uint32_t>(count);
  int result = here.check(payload.graph, HandleKind::kGraph);
  std::vector<Handle> behind;
  for (std::size_t i = 0; i < count && result == 0; ++i) {
    behind.push_back(handle_of(dependencies[i]));
    result = here.check(behind.back(), HandleKind::kGraphNode);
  }
  if (result == 0) result = read(here, given, &payload);
  if (result != 0) return result;
  if (check_dependencies(here.handles(), payload.graph, behind) == Sound::kWrong) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  payload.node = mint_node(here.handles(), payload.graph, 0);
  if (payload.node == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  bool done = false;
  result = send(here, here.passing_site(), opcode::cuGraphAddBatchMemOpNode, payload, behind, given,
                &done);
  if (!done) {
    here.handles().retire(payload.node);
    return result != 0 ? result : int{CUDA_ERROR_UNKNOWN};
  }
  *out = as<CUgraphNode>(payload.node);
  return result;
}

// `exec` 0: in the graph.
int set(std::uint16_t row, bool in_exec, Handle exec, CUgraphNode node,
        const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  int result = enter(here);
  GraphBatchPayload payload;
  payload.graph = exec;
  payload.node = handle_of(node);
  if (result == 0 && in_exec) result = here.check(payload.graph, HandleKind::kGraphExec);
  if (result == 0) result = here.check(payload.node, HandleKind::kGraphNode);
  if (result == 0) result = read(here, *given, &payload);
  if (result != 0) return result;
  bool done = false;
  return send(here, in_exec ? exec_site(here, exec) : here.passing_site(), row, payload, {}, *given,
              &done);
}

int get(const EntryContext& here, CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  const std::uint64_t handle = handle_of(node);
  int result = here.check(handle, HandleKind::kGraphNode);
  if (result != 0) return result;
  CallSite site = here.passing_site();
  site.opcode = opcode::cuGraphBatchMemOpNodeGetParams;
  site.form = protocol::Form::kRaw;
  Reply reply;
  reply.result = -1;  // Not answered.
  result = here.session().call(*here.lane, site, bytes_of(handle), &reply);
  if (reply.result != 0) return result;
  GraphBatchReply read;
  if (reply.payload.size() < sizeof read) return CUDA_ERROR_UNKNOWN;
  std::memcpy(&read, reply.payload.data(), sizeof read);
  const ByteView rest = ByteView(reply.payload).subspan(sizeof read);
  auto operations = std::make_unique<Operations>();
  if (read.operation_count > kStreamMemoryOperationsMax ||
      rest.size() != read.operation_count * sizeof operations->list[0]) {
    return CUDA_ERROR_UNKNOWN;
  }
  operations->list.resize(read.operation_count);
  if (!rest.empty()) std::memcpy(operations->list.data(), rest.data(), rest.size());
  const Operations& kept =
      operations_of_nodes().keep(here.handles(), handle, std::move(operations));
  *out = CUDA_BATCH_MEM_OP_NODE_PARAMS{};
  out->ctx = as<CUcontext>(read.context);
  out->count = read.operation_count;
  // "Any memory pointed to ... must not be modified" (manual, cuGraphNodeGetParams).
  out->paramArray = const_cast<CUstreamBatchMemOpParams*>(kept.list.data());
  out->flags = read.flags;
  return result;
}

}  // namespace

namespace custom {

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (phGraphNode == nullptr || nodeParams == nullptr ||
      (dependencies == nullptr && numDependencies != 0) ||
      numDependencies > limits::kArrayCountMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  EntryContext here;
  if (const int result = enter(here); result != 0) return cuda(result);
  return cuda(add(here, phGraphNode, hGraph, dependencies, numDependencies, *nodeParams));
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  if (nodeParams_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  if (const int result = enter(here); result != 0) return cuda(result);
  return cuda(get(here, hNode, nodeParams_out));
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return cuda(set(opcode::cuGraphBatchMemOpNodeSetParams, false, 0, hNode, nodeParams));
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return cuda(set(opcode::cuGraphExecBatchMemOpNodeSetParams, true, handle_of(hGraphExec), hNode,
                  nodeParams));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
