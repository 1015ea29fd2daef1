// NodeMemory: memory of nodes that the program may read until the node ends or changes, such as the
// values that cuGraphKernelNodeGetParams returns.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "client/log/handles.h"

namespace gpurun::client::interpose {

// Any thread. Immortal, because a program reads it after exit handlers have run.
template <typename T>
class NodeMemory {
 public:
  // Returns what the program may read from now on. If the node has the same already, that stays
  // where it is, because the program may hold pointers from an earlier call. T has operator==.
  const T& keep(const HandleTable& handles, Handle node, std::unique_ptr<T> value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (by_node_.size() >= swept_at_) sweep(handles);
    std::unique_ptr<T>& own = by_node_[node];
    if (own == nullptr || !(*own == *value)) own = std::move(value);
    return *own;
  }

 private:
  static constexpr std::size_t kSweptAtLeast = 64;

  // The memory of ended nodes, and of nodes of ended graphs.
  void sweep(const HandleTable& handles) {
    for (auto each = by_node_.begin(); each != by_node_.end();) {
      const auto graph = reinterpret_cast<std::uintptr_t>(handles.object_of(each->first));
      const bool lives = handles.check(each->first, HandleKind::kGraphNode) == 0 &&
                         (graph == 0 || handles.check(graph, HandleKind::kGraph) == 0);
      each = lives ? std::next(each) : by_node_.erase(each);
    }
    swept_at_ = kSweptAtLeast + 2 * by_node_.size();
  }

  std::mutex mutex_;
  std::map<Handle, std::unique_ptr<T>> by_node_;  // Guarded by mutex_.
  std::size_t swept_at_ = kSweptAtLeast;          // Guarded by mutex_.
};

}  // namespace gpurun::client::interpose
