// Sleeper: how the receiver of a carrier sleeps.
//
// The receiver says so by the carrier. The other end's sender takes that back and sends one kWake
// over the socket, once for each sleep. A Sleeper counts them, so that none stays in the socket and
// wakes a thread for nothing.
//
// The receiving thread uses it. The watcher uses it while no thread receives.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/carrier/carrier.h"

namespace gpurun::transport::carrier {

class Sleeper {
 public:
  explicit Sleeper(Carrier& carrier) noexcept : carrier_(carrier) {}
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // Returns true when there is no reason to sleep: bytes have come, or the end.
  bool go_to_sleep() noexcept {
    note(carrier_.announce_sleep(), true);
    return carrier_.has_bytes() || carrier_.is_closed_in();
  }
  void wake_up() noexcept { note(carrier_.announce_wake(), false); }

  // True from go_to_sleep() until wake_up().
  bool is_asleep() const noexcept { return said_.load(std::memory_order_relaxed); }

  // kWake has come over the socket.
  void heard() noexcept { owed_.fetch_sub(1, std::memory_order_relaxed); }
  // True when kWake is in the socket, or will be soon, for a sleep that is over.
  bool is_owed() const noexcept {
    const bool taken = said_.load(std::memory_order_relaxed) && !carrier_.sleep_is_announced();
    return owed_.load(std::memory_order_relaxed) + (taken ? 1 : 0) > 0;
  }

 private:
  void note(bool was_asleep, bool asleep) noexcept {
    // The sender has taken it back, so it sends a kWake for it.
    if (said_.exchange(asleep, std::memory_order_relaxed) && !was_asleep) {
      owed_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  Carrier& carrier_;
  std::atomic<bool> said_{false};
  std::atomic<std::int64_t> owed_{0};
};

}  // namespace gpurun::transport::carrier
