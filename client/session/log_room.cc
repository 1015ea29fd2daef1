// LogRoom: a wait for room. It is counted, so that the reading thread notices it.
#include "client/session/log_room.h"

#include <chrono>

#include "client/process/no_cancellation.h"

namespace gpurun::client {

CommandLog::Slot LogRoom::wait_and_reserve(std::uint32_t bytes, const CommandLog::Marks& marks) {
  using Clock = std::chrono::steady_clock;
  CommandLog::Slot slot;
  const NoCancellation uncancelled;
  const Clock::time_point start = stats_.enabled() ? Clock::now() : Clock::time_point();
  stats_.count_full_log();
  std::unique_lock<std::mutex> lock(mutex_);
  // Counted before the check that decides: the receiving thread first frees, then reads the count.
  waiters_.fetch_add(1, std::memory_order_acq_rel);
  room_.wait(lock, [&] {
    if (!shutdown_.alive()) return true;
    slot = log_.reserve(bytes, marks);
    return slot.start != nullptr;
  });
  waiters_.fetch_sub(1, std::memory_order_acq_rel);
  if (stats_.enabled()) stats_.count_full_log_end(Clock::now() - start);
  return slot;
}

void LogRoom::wake_all() {
  const std::lock_guard<std::mutex> lock(mutex_);
  room_.notify_all();
}

}  // namespace gpurun::client
