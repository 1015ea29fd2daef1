#include "server/worker/event_book.h"

namespace gpurun::server {

bool EventBook::recorded(std::uint64_t event, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[event];
  entry.sequence = sequence;
  if (entry.to_tell == 0) return false;
  --entry.to_tell;
  return true;
}

std::uint64_t EventBook::last_record(std::uint64_t event) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(event);
  return found == entries_.end() ? 0 : found->second.sequence;
}

void EventBook::asked_in_vain(std::uint64_t event) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(event);
  if (found != entries_.end()) found->second.to_tell = kTold;
}

void EventBook::forget(std::uint64_t event) {
  const std::lock_guard lock(mutex_);
  entries_.erase(event);
}

}  // namespace gpurun::server
