// DevicePace: whether the device keeps up with the program, as far as one round trip lets us see.
//
// A wait that is answered before the news of it have come (docs/adr/0036) hides the time of the
// wire and must not hide the device's: a program that runs ahead of a slow device would find its
// steps free, and then stand. So it is answered only while what it waits for, and the oldest of
// what was answered before and has not been told, was called less than two round trips ago.
//
// How long a round trip takes is the least that any fence of the session took. Before the first
// fence nothing is answered early. Any thread; the lock is never held over a wait.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace gpurun::client {

class DevicePace {
 public:
  using Clock = std::chrono::steady_clock;

  // Waits that are answered and whose ends have not been told: no more than that.
  static constexpr std::size_t kAheadMax = 64;
  // Beyond two round trips: what threads that wake up and records on their way take.
  static constexpr std::chrono::microseconds kSlack{200};

  // `slack` for tests.
  explicit DevicePace(Clock::duration slack = kSlack) noexcept : slack_(slack) {}

  // A fence took so long, from its call to its reply.
  void fence_took(Clock::duration time) noexcept;

  // The program waits for `record`, a call made at `posted` whose end will be told. True: the wait
  // may be answered now, and counts as answered.
  bool answers(std::uint64_t record, Clock::time_point posted, Clock::time_point now) noexcept;

  // The end of `record` is told: what was recorded before and is still awaited has been told, or
  // never will be.
  void told(std::uint64_t record) noexcept;

 private:
  struct Answered {
    std::uint64_t record = 0;
    Clock::time_point posted;
  };
  // How long after its call the end of a record may be told.
  Clock::duration bound() const noexcept {
    return 2 * Clock::duration(round_trip_.load(std::memory_order_relaxed)) + slack_;
  }

  const Clock::duration slack_;
  std::atomic<Clock::rep> round_trip_{0};  // 0: no fence yet.
  std::mutex mutex_;
  std::array<Answered, kAheadMax> ahead_;  // From first_, count_ of them, around the end.
  std::size_t first_ = 0;
  std::atomic<std::size_t> count_{0};  // Written under mutex_.
};

}  // namespace gpurun::client
