// Deadline: an absolute point in monotonic time. Every bounded wait takes one.
#pragma once

#include <chrono>

namespace gpurun {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline in(std::chrono::nanoseconds span) { return Deadline(Clock::now() + span); }
  // For waits that something else bounds (a fence: the silence deadline). The call site names it.
  static Deadline never() { return Deadline(Clock::time_point::max()); }

  bool is_never() const { return when_ == Clock::time_point::max(); }
  bool passed() const { return !is_never() && Clock::now() >= when_; }
  Clock::time_point when() const { return when_; }

  // The time left, at least 0. Meaningless for never().
  std::chrono::nanoseconds remaining() const {
    const auto left = when_ - Clock::now();
    return left.count() > 0 ? left : std::chrono::nanoseconds(0);
  }
  // For poll(2): milliseconds rounded up, -1 for never, at most an hour (callers loop).
  int poll_timeout_ms() const {
    if (is_never()) return -1;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
    return ms > 3'600'000 ? 3'600'000 : static_cast<int>(ms);
  }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace gpurun
