// BriefSpin: keeps a thread awake for a moment before it goes to sleep, as long as that pays.
//
// To put a thread to sleep and wake it costs both sides a system call and a switch, on virtual
// machines of today some ten microseconds; what is waited for in the midst of a conversation often
// comes sooner. Between two looks the thread yields its processor, for the other end may need it. A
// thread whose waits are long stops trying, and so does for a while one whose processor others
// kept when it had yielded: it would come back after their time slices, while one that sleeps and
// is woken goes before them (docs/adr/0029). One thread at a time.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace gpurun {

// The time, and what a thread does between two looks. A test has its own.
struct OwnProcessor {
  using Clock = std::chrono::steady_clock;
  static Clock::time_point now() noexcept { return Clock::now(); }
  static void yield() noexcept {
    // Some hundred nanoseconds, for which a hyper-thread beside this one has the core.
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
  // After so many tries in a row that were in vain none is made.
  static constexpr int kMissesMax = 8;
  // Away for so long after a yield: others want the processor.
  static constexpr std::chrono::microseconds kKept{200};
  // Waits without a try after that: the first time, and at most, after twice as many each time.
  static constexpr int kRestMin = 64, kRestMax = 4096;
  // So many tries in a row without it: nobody else wants the processor any more.
  static constexpr int kCalm = 1024;

  // `span`: for how long at most; 0: never.
  explicit BasicBriefSpin(std::chrono::nanoseconds span = kSpan) noexcept : span_(span) {}

  // True: `ready`, which was asked again and again, says yes. False: go to sleep, and say slept().
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

  // So long it took asleep. What was about as short as a try makes further ones worth while: being
  // woken takes its time, too.
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
