// Driver nodes: handles are copied, then checked.
#include "server/handlers/graphs/driver_nodes.h"

#include <cstring>

#include "server/driver/error_numbers.h"

namespace gpurun::server {

int find_graph(Call& call, std::uint64_t handle, CUgraph* graph) {
  const HandleTable::Found found = call.handles().find(handle, HandleKind::kGraph);
  if (found.result == 0) *graph = driver_object<CUgraph>(found.value);
  return found.result;
}

int find_nodes(Call& call, ByteView handles, std::vector<CUgraphNode>* nodes) {
  std::uint64_t handle = 0;
  nodes->reserve(handles.size() / sizeof handle);
  for (; handles.size() >= sizeof handle; handles = handles.subspan(sizeof handle)) {
    std::memcpy(&handle, handles.data(), sizeof handle);
    const HandleTable::Found found = call.handles().find(handle, HandleKind::kGraphNode);
    if (found.result != 0) return found.result;
    nodes->push_back(driver_object<CUgraphNode>(found.value));
  }
  return 0;
}

int find_only_node(Call& call, CUgraphNode* node) {
  std::uint64_t handle = 0;
  if (call.header().form != protocol::Form::kRaw || call.payload().size() != sizeof handle) {
    return kErrorInvalidValue;
  }
  std::memcpy(&handle, call.payload().data(), sizeof handle);
  const HandleTable::Found found = call.handles().find(handle, HandleKind::kGraphNode);
  if (found.result == 0) *node = driver_object<CUgraphNode>(found.value);
  return found.result;
}

CallOutcome end_addition(Call& call, std::uint64_t node, std::uint64_t graph, int result) {
  if (result != 0 && node != 0 && !call.awaited()) {
    (void)call.handles().poison(node, HandleKind::kGraphNode, result, graph);
  }
  return CallOutcome::done(result);
}

}  // namespace gpurun::server
