// ModuleState: facts that are kept at a load and forgotten at an unload.
#include "server/handlers/modules/module_state.h"

#include <utility>

namespace gpurun::server {

void ModuleState::own(std::uint64_t owner, std::uint64_t child, HandleKind kind) {
  const std::lock_guard lock(mutex_);
  children_[owner][child] = kind;
  owners_[child] = owner;
}

void ModuleState::set_layout(std::uint64_t function, const KernelLayout& layout) {
  const std::lock_guard lock(mutex_);
  if (owners_.count(function) != 0) layouts_[function] = layout;
}

std::optional<KernelLayout> ModuleState::layout(std::uint64_t function) const {
  const std::lock_guard lock(mutex_);
  const auto it = layouts_.find(function);
  if (it == layouts_.end()) return std::nullopt;
  return it->second;
}

void ModuleState::end(std::uint64_t owner, HandleTable& handles) {
  std::vector<std::pair<std::uint64_t, HandleKind>> ended;
  {
    const std::lock_guard lock(mutex_);
    if (const auto above = owners_.extract(owner); !above.empty()) {
      const auto siblings = children_.find(above.mapped());
      if (siblings != children_.end() && siblings->second.erase(owner) != 0 &&
          siblings->second.empty()) {
        children_.erase(siblings);
      }
    }
    std::vector<std::uint64_t> owners{owner};
    while (!owners.empty()) {
      const auto node = children_.extract(owners.back());
      owners.pop_back();
      if (node.empty()) continue;
      for (const auto& [child, kind] : node.mapped()) {
        owners.push_back(child);
        owners_.erase(child);
        layouts_.erase(child);
        ended.emplace_back(child, kind);
      }
    }
  }
  for (const auto& [child, kind] : ended) (void)handles.erase(child, kind);
}

}  // namespace gpurun::server
