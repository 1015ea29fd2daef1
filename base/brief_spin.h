// BriefSpin: a short poll before a thread goes to sleep, for as long as polling pays.
//
// Sleeping and waking costs both sides a system call and a thread switch. In the midst of a
// conversation the awaited event often comes sooner than that. Between two polls the thread yields
// its processor, because the other end may need it. A thread that only has long waits stops
// polling. A thread also stops for a while after a yield that kept it off its processor for long.
// Such a thread would run again only after the other threads' time slices, and a woken sleeper runs
// before them (docs/adr/0029). One thread at a time.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace gpurun {

// The clock, and the yield between two polls. Tests replace both.
struct OwnProcessor {
  using Clock = std::chrono::steady_clock;
  static Clock::time_point now() noexcept { return Clock::now(); }
  static void yield() noexcept {
    // Pauses first, so that a hyper-thread beside this one has the core for a moment.
    for (int i = 0; i < 8; ++i) {
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield" ::: "memory");
#endif
    }
    sched_yield();
  }
};

template <typename Processor>
class BasicBriefSpin {
 public:
  using Clock = typename Processor::Clock;
  static constexpr std::chrono::microseconds kSpan{30};
  // After so many unsuccessful polls in a row, wait() polls no more.
  static constexpr int kMissesMax = 8;
  // A yield that takes so long means that other threads want the processor.
  static constexpr std::chrono::microseconds kKept{200};
  // So many waits do not poll after such a yield. The number doubles each time, up to the maximum.
  static constexpr int kRestMin = 64, kRestMax = 4096;
  // After so many successful polls in a row, the processor counts as free again.
  static constexpr int kCalm = 1024;

  // `span`: the longest time of one poll. 0 disables polling.
  explicit BasicBriefSpin(std::chrono::nanoseconds span = kSpan) noexcept : span_(span) {}

  // Calls `ready` repeatedly. Returns true when it returned true. After false the caller goes to
  // sleep and then calls slept().
  template <typename Ready>
  bool wait(Ready ready) {
    if (span_.count() == 0 || misses_ == kMissesMax) return false;
    if (rest_ > 0) {
      --rest_;
      return false;
    }
    typename Clock::time_point looked = Processor::now();
    const typename Clock::time_point end = looked + span_;
    do {
      if (ready()) {
        misses_ = 0;
        if (calm_ < kCalm && ++calm_ == kCalm) next_rest_ = kRestMin;
        return true;
      }
      const typename Clock::time_point left = Processor::now();
      Processor::yield();
      looked = Processor::now();
      if (looked - left >= kKept) {
        rest_ = next_rest_;
        next_rest_ = std::min(2 * next_rest_, kRestMax);
        calm_ = 0;
        return ready();
      }
    } while (looked < end);
    ++misses_;
    return false;
  }

  // `time`: how long the thread slept. A sleep about as short as a poll makes polling worthwhile
  // again, because a wake-up takes time too.
  void slept(std::chrono::nanoseconds time) noexcept {
    if (time < 2 * span_) misses_ = 0;
  }

 private:
  const std::chrono::nanoseconds span_;
  int misses_ = 0;
  int rest_ = 0;
  int next_rest_ = kRestMin;
  int calm_ = 0;
};

using BriefSpin = BasicBriefSpin<OwnProcessor>;

}  // namespace gpurun
