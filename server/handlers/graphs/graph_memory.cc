// Graph memory: nodes that allocate memory (protocol/calls/graph_memory.h). Nodes that free it are
// generated rows.
#include "protocol/calls/graph_memory.h"

#include <cstring>
#include <vector>

#include "server/handlers/graphs/driver_nodes.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using protocol::GraphMemoryPayload;
using protocol::GraphMemoryReply;
using protocol::kGraphMemoryAccessesMax;

// The requested node in the driver's form.
struct Wanted {
  GraphMemoryPayload node;
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> dependencies;
  std::vector<CUmemAccessDesc> accesses;

  // Copies, then checks.
  int read(Call& call);
};

int Wanted::read(Call& call) {
  ByteView rest = call.payload();
  if (rest.size() < sizeof node) return kErrorInvalidValue;
  std::memcpy(&node, rest.data(), sizeof node);
  rest = rest.subspan(sizeof node);
  if (node.dependency_count > limits::kArrayCountMax ||
      node.access_count > kGraphMemoryAccessesMax ||
      rest.size() != node.dependency_count * sizeof(std::uint64_t) +
                         node.access_count * sizeof(CUmemAccessDesc)) {
    return kErrorInvalidValue;
  }
  node.properties.win32SecurityAttributes = nullptr;
  int result = find_graph(call, node.graph, &graph);
  if (result != 0) return result;
  const std::size_t handle_bytes = std::size_t{node.dependency_count} * sizeof(std::uint64_t);
  result = find_nodes(call, rest.first(handle_bytes), &dependencies);
  if (result != 0) return result;
  rest = rest.subspan(handle_bytes);
  accesses.resize(node.access_count);
  if (!rest.empty()) std::memcpy(accesses.data(), rest.data(), rest.size());
  return 0;
}

int add(Call& call, const Wanted& wanted) {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  parameters.poolProps = wanted.node.properties;
  parameters.accessDescs = wanted.accesses.empty() ? nullptr : wanted.accesses.data();
  parameters.accessDescCount = wanted.accesses.size();
  parameters.bytesize = wanted.node.bytes;
  CUgraphNode added = nullptr;
  const int result =
      GPURUN_DRIVER(HandlerState::of(call).driver(), cuGraphAddMemAllocNode, &added, wanted.graph,
                    wanted.dependencies.data(), wanted.dependencies.size(), &parameters);
  if (result != 0) return result;
  const std::uint64_t address = parameters.dptr;
  call.set_reply(bytes_of(address));
  return call.handles().bind(wanted.node.node, HandleKind::kGraphNode,
                             reinterpret_cast<std::uintptr_t>(added), wanted.node.graph);
}

CallOutcome run_add(Call& call) {
  if (call.header().form != protocol::Form::kRaw) return CallOutcome::done(kErrorInvalidValue);
  Wanted wanted;
  int result = wanted.read(call);
  if (wanted.node.node != 0) call.set_created(wanted.node.node);
  if (result == 0) result = add(call, wanted);
  return end_addition(call, wanted.node.node, wanted.node.graph, result);
}

CallOutcome run_get(Call& call) {
  CUgraphNode node = nullptr;
  const int found = find_only_node(call, &node);
  if (found != 0) return CallOutcome::done(found);
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  const int result = GPURUN_DRIVER(HandlerState::of(call).driver(), cuGraphMemAllocNodeGetParams,
                                   node, &parameters);
  if (result != 0) return CallOutcome::done(result);
  const std::size_t count = parameters.accessDescs == nullptr ? 0 : parameters.accessDescCount;
  if (count > kGraphMemoryAccessesMax) return CallOutcome::done(kErrorNotSupported);
  GraphMemoryReply reply;
  reply.properties = parameters.poolProps;
  reply.properties.win32SecurityAttributes = nullptr;
  reply.bytes = parameters.bytesize;
  reply.address = parameters.dptr;
  reply.access_count = static_cast<std::uint32_t>(count);
  Bytes whole(sizeof reply + count * sizeof(CUmemAccessDesc));
  std::memcpy(whole.data(), &reply, sizeof reply);
  if (count != 0) {
    std::memcpy(whole.data() + sizeof reply, parameters.accessDescs,
                count * sizeof(CUmemAccessDesc));
  }
  call.set_reply(whole);
  return CallOutcome::done(0);
}

}  // namespace

void add_graph_memory_handlers(Handlers& handlers) {
  set_handler(handlers, "cuGraphAddMemAllocNode", &run_add);
  set_handler(handlers, "cuGraphMemAllocNodeGetParams", &run_get);
}

}  // namespace gpurun::server
