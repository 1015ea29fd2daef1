// The ordered map of address ranges behind MemoryRegistry.
#include "emulated/objects/memory_registry.h"

#include <algorithm>
#include <mutex>

namespace gpurun::emulated {

bool MemoryRegistry::add(MemoryRange range) {
  if (range.bytes == 0 || range.base + range.bytes < range.base) return false;
  const std::unique_lock lock(mutex_);
  const auto after = ranges_.lower_bound(range.base);
  if (after != ranges_.end() && after->first < range.end()) return false;
  if (after != ranges_.begin() && std::prev(after)->second.end() > range.base) return false;
  range.buffer_id = next_buffer_id_++;
  ranges_.emplace_hint(after, range.base, range);
  if (range.kind == MemoryKind::kManaged) advice_.add(range.base, range.bytes);
  return true;
}

std::optional<MemoryRange> MemoryRegistry::find(std::uint64_t address) const {
  const std::shared_lock lock(mutex_);
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return std::nullopt;
  const MemoryRange& range = std::prev(after)->second;
  if (address >= range.end()) return std::nullopt;
  return range;
}

bool MemoryRegistry::covers(std::uint64_t address, std::uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  return covers_locked(address, bytes);
}

void MemoryRegistry::add_device_addresses(std::uint64_t base, std::uint64_t bytes) {
  const std::unique_lock lock(mutex_);
  device_addresses_[base] = base + bytes;
}

void MemoryRegistry::remove_device_addresses(std::uint64_t base) {
  const std::unique_lock lock(mutex_);
  device_addresses_.erase(base);
}

bool MemoryRegistry::permits(std::uint64_t address, std::uint64_t bytes) const {
  if (address + bytes < address) return false;
  const std::shared_lock lock(mutex_);
  const auto behind = device_addresses_.lower_bound(address + bytes);
  const bool theirs =
      behind != device_addresses_.begin() && std::prev(behind)->second > address && bytes != 0;
  return !theirs || covers_locked(address, bytes);
}

bool MemoryRegistry::covers_locked(std::uint64_t address, std::uint64_t bytes) const {
  if (address + bytes < address) return false;
  const std::uint64_t end = address + bytes;
  auto at = ranges_.upper_bound(address);
  if (at == ranges_.begin()) return false;
  --at;
  std::uint64_t reached = address;
  while (true) {
    const MemoryRange& range = at->second;
    if (reached < range.base || reached >= range.end() || !range.accessible) return false;
    reached = range.end();
    if (reached >= end) return true;
    if (++at == ranges_.end()) return false;
  }
}

std::optional<MemoryRange> MemoryRegistry::take(std::uint64_t base,
                                                std::initializer_list<MemoryKind> kinds) {
  const std::unique_lock lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end()) return std::nullopt;
  if (std::find(kinds.begin(), kinds.end(), found->second.kind) == kinds.end()) return std::nullopt;
  const MemoryRange range = found->second;
  ranges_.erase(found);
  if (range.kind == MemoryKind::kManaged) advice_.remove(range.base);
  return range;
}

bool MemoryRegistry::change_kind(std::uint64_t base, MemoryKind from, MemoryKind to) {
  const std::unique_lock lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end() || found->second.kind != from) return false;
  found->second.kind = to;
  return true;
}

std::vector<MemoryRange> MemoryRegistry::take_of_context(std::uint64_t context_handle) {
  std::vector<MemoryRange> taken;
  const std::unique_lock lock(mutex_);
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    if (at->second.context_handle == context_handle) {
      taken.push_back(at->second);
      if (at->second.kind == MemoryKind::kManaged) advice_.remove(at->first);
      at = ranges_.erase(at);
    } else {
      ++at;
    }
  }
  return taken;
}

bool MemoryRegistry::set_accessible(std::uint64_t base, std::uint64_t bytes, bool accessible) {
  const std::unique_lock lock(mutex_);
  std::uint64_t reached = base;
  std::vector<MemoryRange*> inside;
  for (auto at = ranges_.find(base); at != ranges_.end() && reached < base + bytes; ++at) {
    MemoryRange& range = at->second;
    if (range.base != reached || range.kind != MemoryKind::kMapped) return false;
    reached = range.end();
    inside.push_back(&range);
  }
  if (reached != base + bytes) return false;
  for (MemoryRange* range : inside) range->accessible = accessible;
  return true;
}

MemoryRegistry& memory_registry() {
  static MemoryRegistry* registry = new MemoryRegistry;
  return *registry;
}

}  // namespace gpurun::emulated
