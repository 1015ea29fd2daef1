#include "server/handlers/module_state.h"

#include <utility>

namespace gpurun::server {

void ModuleState::own(std::uint64_t owner, std::uint64_t child, HandleKind kind) {
  const std::lock_guard lock(mutex_);
  children_[owner].push_back({child, kind});
}

void ModuleState::set_layout(std::uint64_t function, const KernelLayout& layout) {
  const std::lock_guard lock(mutex_);
  layouts_[function] = layout;
}

std::optional<KernelLayout> ModuleState::layout(std::uint64_t function) const {
  const std::lock_guard lock(mutex_);
  const auto it = layouts_.find(function);
  if (it == layouts_.end()) return std::nullopt;
  return it->second;
}

void ModuleState::end(std::uint64_t owner, HandleTable& handles) {
  std::vector<Child> ended;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint64_t> owners{owner};
    while (!owners.empty()) {
      const auto node = children_.extract(owners.back());
      owners.pop_back();
      if (node.empty()) continue;
      for (const Child& child : node.mapped()) {
        owners.push_back(child.handle);
        layouts_.erase(child.handle);
        ended.push_back(child);
      }
    }
  }
  for (const Child& child : ended) (void)handles.erase(child.handle, child.kind);
}

}  // namespace gpurun::server
