// ReceivingRole: who reads the log channel. At most one thread at a time: one that waits for a
// reply, so that the reply wakes it and nobody before it, or else the receiver thread, which sleeps
// at the connection's watch meanwhile (docs/adr/0023).
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace gpurun::client {

class ReceivingRole {
 public:
  ReceivingRole() = default;
  ReceivingRole(const ReceivingRole&) = delete;
  ReceivingRole& operator=(const ReceivingRole&) = delete;

  // Before any thread. Without a watch the receiver thread has the role for good.
  void start(std::unique_ptr<transport::Watch> watch) noexcept {
    watch_ = std::move(watch);
    if (watch_ == nullptr) taken_.store(1, std::memory_order_relaxed);
  }
  // nullptr: none.
  transport::Watch* watch() const noexcept { return watch_.get(); }

  // The receiver thread's. What the holder has seen and kept is the next one's.
  bool take() noexcept {
    std::uint32_t free = 0;
    return taken_.compare_exchange_strong(free, 1, std::memory_order_acquire);
  }
  void give_up() noexcept { taken_.store(0, std::memory_order_release); }

  // A waiting thread's: meanwhile the watch is paused. In this order: the receiver thread, whom the
  // watch wakes, must find the role free, or it would ask again and again.
  bool take_from_watcher() noexcept {
    if (watch_ == nullptr) return false;
    watch_->pause();
    if (take()) return true;
    watch_->resume();
    return false;
  }
  void give_to_watcher() noexcept {
    give_up();
    watch_->resume();
  }

 private:
  std::atomic<std::uint32_t> taken_{0};
  std::unique_ptr<transport::Watch> watch_;
};

// While a thread of the program has to do with the session's connections it cannot be cancelled: a
// frame cut in half, or a role that nobody gives up, would be the end for all of them.
class NoCancellation {
 public:
  NoCancellation() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace gpurun::client
