// EarlyWaitLimiter: the waits that were answered and are not reported yet, oldest first.
#include "client/early_answers/early_wait_limiter.h"

namespace gpurun::client {

void EarlyWaitLimiter::fence_took(Clock::duration time) noexcept {
  const Clock::rep taken = time.count() > 0 ? time.count() : 1;
  Clock::rep least = round_trip_.load(std::memory_order_relaxed);
  while ((least == 0 || taken < least) &&
         !round_trip_.compare_exchange_weak(least, taken, std::memory_order_relaxed)) {
  }
}

bool EarlyWaitLimiter::answers(std::uint64_t record, Clock::time_point posted,
                               Clock::time_point now) noexcept {
  if (round_trip_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  if (count == kAheadMax || now - posted > bound()) return false;
  if (count != 0 && now - ahead_[first_].posted > bound()) return false;
  ahead_[(first_ + count) % kAheadMax] = {record, posted};
  count_.store(count + 1, std::memory_order_relaxed);
  return true;
}

void EarlyWaitLimiter::told(std::uint64_t record) noexcept {
  if (count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::size_t count = count_.load(std::memory_order_relaxed);
  for (; count != 0 && ahead_[first_].record <= record; --count) {
    first_ = (first_ + 1) % kAheadMax;
  }
  count_.store(count, std::memory_order_relaxed);
}

}  // namespace gpurun::client
