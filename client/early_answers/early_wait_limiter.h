// EarlyWaitLimiter: estimates whether the device keeps up with the program, to within one round
// trip.
//
// A wait may be answered before the worker reports its end (docs/adr/0036). That hides the time of
// the network. It must not hide the device's time. Otherwise a program that runs ahead of a slow
// device would measure its steps as free, and then stall. So a wait is answered early only within
// two round trips of two calls. One is the call that it waits for. The other is the oldest call
// that was answered early and is not reported yet.
//
// A round trip is the shortest time of any fence of the session. Before the first fence nothing is
// answered early. Any thread. The lock is never held over a wait.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace gpurun::client {

class EarlyWaitLimiter {
 public:
  using Clock = std::chrono::steady_clock;

  // The most waits that are answered with ends that are not reported yet.
  static constexpr std::size_t kAheadMax = 64;
  // Added to two round trips, for threads that wake up and records on their way.
  static constexpr std::chrono::microseconds kSlack{200};

  // Tests set `slack`.
  explicit EarlyWaitLimiter(Clock::duration slack = kSlack) noexcept : slack_(slack) {}

  // `time` is the time from a fence's call to its reply.
  void fence_took(Clock::duration time) noexcept;

  // The program waits for `record`, a call made at `posted`. Its end will be reported. Returns true
  // if the wait may be answered now, and counts it as answered.
  bool answers(std::uint64_t record, Clock::time_point posted, Clock::time_point now) noexcept;

  // The end of `record` is reported. The ends of earlier records have been reported, or never will
  // be.
  void told(std::uint64_t record) noexcept;

 private:
  struct Answered {
    std::uint64_t record = 0;
    Clock::time_point posted;
  };
  // How long after its call the end of a record may be reported.
  Clock::duration bound() const noexcept {
    return 2 * Clock::duration(round_trip_.load(std::memory_order_relaxed)) + slack_;
  }

  const Clock::duration slack_;
  std::atomic<Clock::rep> round_trip_{0};  // 0: no fence yet.
  std::mutex mutex_;
  std::array<Answered, kAheadMax> ahead_;  // count_ of them from first_ on, around the end.
  std::size_t first_ = 0;
  std::atomic<std::size_t> count_{0};  // Written under mutex_.
};

}  // namespace gpurun::client
