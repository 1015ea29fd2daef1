// DeferredErrors: the last failures in a ring, and the contexts that are lost.
#include "client/early_answers/deferred_errors.h"

#include <algorithm>

#include "client/log/lane.h"

namespace gpurun::client {

bool DeferredErrors::add(Error error, bool sticky) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (sticky) {
    for (const Sticky& known : sticky_) {
      if (known.context == error.context) return true;  // The first cause stays.
    }
    if (sticky_.size() == kStickyMax) return false;
    sticky_.push_back({error.context, error.result});
    sticky_count_.store(sticky_.size(), std::memory_order_release);
    return true;
  }
  error.number = count_.load(std::memory_order_relaxed) + 1;
  kept_[error.number % kKept] = error;
  count_.store(error.number, std::memory_order_release);
  return true;
}

void DeferredErrors::adopt(Lane& lane, std::uint64_t session) const {
  lane.seen_.clear();
  lane.errors_at_birth_ = count_.load(std::memory_order_acquire);
  lane.session_ = session;
  lane.forget_polls();
}

void DeferredErrors::forget(Handle context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sticky_.erase(std::remove_if(sticky_.begin(), sticky_.end(),
                               [context](const Sticky& each) { return each.context == context; }),
                sticky_.end());
  sticky_count_.store(sticky_.size(), std::memory_order_release);
}

int DeferredErrors::sticky(Handle context) const noexcept {
  if (sticky_count_.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Sticky& lost : sticky_) {
    if (lost.context == context || lost.context == 0) return lost.result;
  }
  return 0;
}

int DeferredErrors::take(Lane& lane, Handle context) {
  if (count_.load(std::memory_order_acquire) == lane.errors_at_birth_) return 0;
  const auto seen_of = [&lane](Handle of) -> Lane::Seen& {
    for (Lane::Seen& seen : lane.seen_) {
      if (seen.context == of) return seen;
    }
    lane.seen_.push_back({of, lane.errors_at_birth_});
    return lane.seen_.back();
  };
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint64_t last = count_.load(std::memory_order_relaxed);
  std::uint64_t number = std::max(lane.errors_at_birth_, last > kKept ? last - kKept : 0);
  int result = 0;
  while (++number <= last) {
    const Error& error = kept_[number % kKept];
    const bool ours = error.lane == lane.id() || error.context == context || error.context == 0;
    if (!ours) continue;
    Lane::Seen& seen = seen_of(error.context);
    if (seen.count >= number) continue;
    seen.count = number;
    if (result == 0) result = error.result;
  }
  return result;
}

}  // namespace gpurun::client
