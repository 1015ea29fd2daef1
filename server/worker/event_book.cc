// A vain question is worth a number of unasked answers.
#include "server/worker/event_book.h"

#include <algorithm>

namespace gpurun::server {

void EventBook::recorded(std::uint64_t event, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  records_[event].recorded = sequence;
}

std::uint64_t EventBook::last_record(std::uint64_t event) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(event);
  return found == records_.end() ? 0 : found->second.recorded;
}

void EventBook::told(std::uint64_t event, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(event);
  if (found != records_.end()) found->second.told = std::max(found->second.told, sequence);
}

bool EventBook::is_told(std::uint64_t event) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(event);
  return found != records_.end() && found->second.told >= found->second.recorded;
}

void EventBook::forget(std::uint64_t event) {
  const std::lock_guard lock(mutex_);
  records_.erase(event);
}

}  // namespace gpurun::server
