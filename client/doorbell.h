// Doorbell: wakes one sleeping thread, at the cost of one system call per sleep and none else.
//
// ring() may come from any thread, also before the wait: it is not lost. One waiter.
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
  // How often its waiter went to sleep, and was woken by a system call of a ringer.
  struct Counts {
    std::atomic<std::uint64_t> sleeps{0};
    std::atomic<std::uint64_t> wakes{0};
  };
  // From now on these are counted, with the system calls and nowhere else. Before the first wait().
  void count_into(Counts* counts) noexcept { counts_ = counts; }

  // No system call unless the waiter sleeps and nobody has rung since.
  void ring() noexcept {
    if (state_.exchange(kRung, std::memory_order_seq_cst) == kAsleep) {
      syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
      if (counts_ != nullptr) counts_->wakes.fetch_add(1, std::memory_order_relaxed);
    }
  }

  // There is a ring() that no wait() has taken: the next one returns at once. The waiter.
  bool rung() const noexcept { return state_.load(std::memory_order_relaxed) == kRung; }

  // Returns after a ring() that no earlier wait() has taken. Unbounded: the ringer's death rings.
  void wait() noexcept {
    std::uint32_t seen = kQuiet;
    state_.compare_exchange_strong(seen, kAsleep, std::memory_order_seq_cst);
    while (state_.load(std::memory_order_seq_cst) != kRung) {
      if (counts_ != nullptr) counts_->sleeps.fetch_add(1, std::memory_order_relaxed);
      // EINTR, EAGAIN and spurious wake-ups look the same: look again.
      syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kAsleep, nullptr, nullptr, 0);
    }
    // An exchange, not a store: it also takes a ring() that came since the look above, and sees
    // what its thread did before.
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
