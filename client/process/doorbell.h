// Doorbell: wakes one sleeping thread, at the cost of one system call per sleep.
//
// Any thread may call ring(), also before the wait: it is not lost. One waiter.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace gpurun::client {

class Doorbell {
 public:
  // How often its waiter went to sleep, and how often a ringer woke it by a system call.
  struct Counts {
    std::atomic<std::uint64_t> sleeps{0};
    std::atomic<std::uint64_t> wakes{0};
  };
  // Counts into `counts` from now on, only at the system calls. Call it before the first wait().
  void count_into(Counts* counts) noexcept { counts_ = counts; }

  // Makes no system call unless the waiter sleeps and no thread has rung since.
  void ring() noexcept {
    if (state_.exchange(kRung, std::memory_order_seq_cst) == kAsleep) {
      syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
      if (counts_ != nullptr) counts_->wakes.fetch_add(1, std::memory_order_relaxed);
    }
  }

  // Returns whether a ring() is there that no wait() has taken: the next wait() returns at once.
  // For the waiter.
  bool rung() const noexcept { return state_.load(std::memory_order_relaxed) == kRung; }

  // Returns after a ring() that no earlier wait() has taken. Unbounded: the ringer must also ring
  // when it ends.
  void wait() noexcept {
    std::uint32_t seen = kQuiet;
    state_.compare_exchange_strong(seen, kAsleep, std::memory_order_seq_cst);
    while (state_.load(std::memory_order_seq_cst) != kRung) {
      if (counts_ != nullptr) counts_->sleeps.fetch_add(1, std::memory_order_relaxed);
      // EINTR, EAGAIN and spurious wake-ups look the same, so check again.
      syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kAsleep, nullptr, nullptr, 0);
    }
    // An exchange, not a store: it also takes a ring() that came since the check above, and sees
    // what the ringing thread did before.
    state_.exchange(kQuiet, std::memory_order_seq_cst);
  }

 private:
  static constexpr std::uint32_t kQuiet = 0;
  static constexpr std::uint32_t kAsleep = 1;
  static constexpr std::uint32_t kRung = 2;
  std::atomic<std::uint32_t> state_{kQuiet};
  Counts* counts_ = nullptr;
  static_assert(sizeof(std::atomic<std::uint32_t>) == 4, "a futex is a 32-bit word");
};

}  // namespace gpurun::client
