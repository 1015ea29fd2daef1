// EventRegistry: a map from events to the calls that recorded them last.
#include "server/worker/execution/event_registry.h"

namespace gpurun::server {

void EventRegistry::recorded(std::uint64_t event, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  records_[event] = sequence;
}

std::uint64_t EventRegistry::last_record(std::uint64_t event) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(event);
  return found == records_.end() ? 0 : found->second;
}

void EventRegistry::forget(std::uint64_t event) {
  const std::lock_guard lock(mutex_);
  records_.erase(event);
}

}  // namespace gpurun::server
