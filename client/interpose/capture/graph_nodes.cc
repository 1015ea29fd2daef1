// Graph nodes: a node's graph is the object of its handle.
#include "client/interpose/capture/graph_nodes.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "protocol/calls/owned_handles.h"

namespace gpurun::client::interpose {
namespace {

std::atomic<bool> g_conditional_nodes{false};

struct Ownership {
  std::mutex mutex;
  protocol::OwnedHandles handles;  // Guarded by mutex.
};
// Immortal, because programs destroy graphs in exit handlers.
Ownership& ownership() {
  static auto* const only = new Ownership;
  return *only;
}

}  // namespace

void note_conditional_node() noexcept { g_conditional_nodes.store(true); }
bool conditional_nodes_exist() noexcept { return g_conditional_nodes.load(); }

Handle mint_node(HandleTable& handles, Handle graph, Handle context) {
  const Handle node = handles.mint(HandleKind::kGraphNode, context, as<void*>(graph));
  if (node != 0) own_handle(handles, graph, node);
  return node;
}

void own_handle(const HandleTable& handles, Handle owner, Handle member) {
  Ownership& all = ownership();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.handles.add(owner, member, [&handles](Handle each) {
    return handles.check_end(each, claimed_kind(each)) == 0;
  });
}

void adopt_node(HandleTable& handles, Handle graph, Handle node) {
  if (graph == 0 || !handles.set_object(node, as<void*>(graph))) return;
  own_handle(handles, graph, node);
}

void note_moved(HandleTable& handles, Handle graph, Handle node) {
  (void)handles.set_object(graph, as<void*>(node));
  own_handle(handles, node, graph);
}

bool is_moved(const HandleTable& handles, Handle graph) {
  return claimed_kind(graph) == HandleKind::kGraph && handles.object_of(graph) != nullptr;
}

void retire_owned(HandleTable& handles, Handle owner) {
  std::vector<Handle> ended;
  {
    Ownership& all = ownership();
    const std::lock_guard<std::mutex> lock(all.mutex);
    ended = all.handles.take(owner);
  }
  for (const Handle each : ended) handles.retire(each);
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
