// Batch nodes: memory operations as nodes of graphs (protocol/calls/graph_parameters.h). The driver
// checks the operations, as it does for a stream.
#include <cstring>
#include <vector>

#include "driver_abi/semantics/object_flags.h"
#include "protocol/calls/graph_parameters.h"
#include "server/handlers/graphs/driver_nodes.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using driver_abi::kStreamMemoryOperationsMax;
using protocol::GraphBatchPayload;
using protocol::GraphBatchReply;

// The requested node in the driver's form. Copied, then checked.
struct Wanted {
  GraphBatchPayload node;
  CUcontext context = nullptr;
  std::vector<CUgraphNode> dependencies;
  std::vector<CUstreamBatchMemOpParams> operations;

  int read(Call& call);
  CUDA_BATCH_MEM_OP_NODE_PARAMS parameters() {
    return {context, node.operation_count, operations.data(), node.flags};
  }
};

int Wanted::read(Call& call) {
  ByteView rest = call.payload();
  if (call.header().form != protocol::Form::kRaw || rest.size() < sizeof node) {
    return kErrorInvalidValue;
  }
  std::memcpy(&node, rest.data(), sizeof node);
  rest = rest.subspan(sizeof node);
  if (node.dependency_count > limits::kArrayCountMax ||
      node.operation_count > kStreamMemoryOperationsMax ||
      rest.size() != std::size_t{node.dependency_count} * sizeof(std::uint64_t) +
                         std::size_t{node.operation_count} * sizeof(CUstreamBatchMemOpParams)) {
    return kErrorInvalidValue;
  }
  if (node.context != 0) {
    const HandleTable::Found found = call.handles().find(node.context, HandleKind::kContext);
    if (found.result != 0) return found.result;
    context = driver_object<CUcontext>(found.value);
  }
  const std::size_t handle_bytes = std::size_t{node.dependency_count} * sizeof(std::uint64_t);
  if (const int result = find_nodes(call, rest.first(handle_bytes), &dependencies); result != 0) {
    return result;
  }
  rest = rest.subspan(handle_bytes);
  operations.resize(node.operation_count);
  if (!rest.empty()) std::memcpy(operations.data(), rest.data(), rest.size());
  return 0;
}

int add(Call& call, Wanted& wanted) {
  CUgraph graph = nullptr;
  if (const int result = find_graph(call, wanted.node.graph, &graph); result != 0) return result;
  const CUDA_BATCH_MEM_OP_NODE_PARAMS parameters = wanted.parameters();
  CUgraphNode added = nullptr;
  const int result =
      GPURUN_DRIVER(HandlerState::of(call).driver(), cuGraphAddBatchMemOpNode, &added, graph,
                    wanted.dependencies.data(), wanted.dependencies.size(), &parameters);
  if (result != 0) return result;
  return call.handles().bind(wanted.node.node, HandleKind::kGraphNode,
                             reinterpret_cast<std::uintptr_t>(added), wanted.node.graph);
}

CallOutcome run_add(Call& call) {
  Wanted wanted;
  int result = wanted.read(call);
  if (wanted.node.node != 0) call.set_created(wanted.node.node);
  if (result == 0) result = add(call, wanted);
  return end_addition(call, wanted.node.node, wanted.node.graph, result);
}

int set(Call& call, Wanted& wanted) {
  const HandleTable::Found node = call.handles().find(wanted.node.node, HandleKind::kGraphNode);
  if (node.result != 0) return node.result;
  const CudaDriver& driver = HandlerState::of(call).driver();
  const CUDA_BATCH_MEM_OP_NODE_PARAMS parameters = wanted.parameters();
  if (wanted.node.graph == 0) {
    return GPURUN_DRIVER(driver, cuGraphBatchMemOpNodeSetParams,
                         driver_object<CUgraphNode>(node.value), &parameters);
  }
  const HandleTable::Found exec = call.handles().find(wanted.node.graph, HandleKind::kGraphExec);
  if (exec.result != 0) return exec.result;
  return GPURUN_DRIVER(driver, cuGraphExecBatchMemOpNodeSetParams,
                       driver_object<CUgraphExec>(exec.value),
                       driver_object<CUgraphNode>(node.value), &parameters);
}

CallOutcome run_set(Call& call) {
  Wanted wanted;
  const int result = wanted.read(call);
  return CallOutcome::done(result != 0 ? result : set(call, wanted));
}

CallOutcome run_get(Call& call) {
  CUgraphNode node = nullptr;
  const int found = find_only_node(call, &node);
  if (found != 0) return CallOutcome::done(found);
  CUDA_BATCH_MEM_OP_NODE_PARAMS read{};
  const int result =
      GPURUN_DRIVER(HandlerState::of(call).driver(), cuGraphBatchMemOpNodeGetParams, node, &read);
  if (result != 0) return CallOutcome::done(result);
  const std::size_t count = read.paramArray == nullptr ? 0 : read.count;
  if (count > kStreamMemoryOperationsMax) return CallOutcome::done(kErrorNotSupported);
  GraphBatchReply reply;
  reply.context = call.handles().client_handle_of(reinterpret_cast<std::uintptr_t>(read.ctx),
                                                  HandleKind::kContext);
  reply.flags = read.flags;
  reply.operation_count = static_cast<std::uint32_t>(count);
  const std::size_t bytes = count * sizeof(CUstreamBatchMemOpParams);
  Bytes whole(sizeof reply + bytes);
  std::memcpy(whole.data(), &reply, sizeof reply);
  if (bytes != 0) std::memcpy(whole.data() + sizeof reply, read.paramArray, bytes);
  call.set_reply(whole);
  return CallOutcome::done(0);
}

}  // namespace

void add_batch_node_handlers(Handlers& handlers) {
  set_handler(handlers, "cuGraphAddBatchMemOpNode", &run_add);
  set_handler(handlers, "cuGraphBatchMemOpNodeSetParams", &run_set);
  set_handler(handlers, "cuGraphExecBatchMemOpNodeSetParams", &run_set);
  set_handler(handlers, "cuGraphBatchMemOpNodeGetParams", &run_get);
}

}  // namespace gpurun::server
