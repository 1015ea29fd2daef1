// Graph nodes: a node's graph is the object of its handle.
#include "client/interpose/capture/graph_nodes.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace gpurun::client::interpose {
namespace {

std::atomic<bool> g_conditional_nodes{false};

}  // namespace

void note_conditional_node() noexcept { g_conditional_nodes.store(true); }
bool conditional_nodes_exist() noexcept { return g_conditional_nodes.load(); }

Handle mint_node(HandleTable& handles, Handle graph, Handle context) {
  return handles.mint(HandleKind::kGraphNode, context, as<void*>(graph));
}

Sound check_dependencies(const HandleTable& handles, Handle graph,
                         std::span<const Handle> dependencies) {
  bool all_known = true;
  for (const Handle node : dependencies) {
    const auto known = handle_of(handles.object_of(node));
    if (known != 0 && known != graph) return Sound::kWrong;
    all_known = all_known && known != 0;
  }
  if (dependencies.size() > 1) {
    std::vector<Handle> sorted(dependencies.begin(), dependencies.end());
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return Sound::kWrong;
  }
  return all_known ? Sound::kRight : Sound::kUnknown;
}

}  // namespace gpurun::client::interpose
