// ReceivingRole: the right to read the log channel, which at most one thread has at a time.
//
// A thread that waits for a reply takes the role, so that the reply wakes that thread directly. In
// the meantime the receiver thread sleeps at the connection's watch. At other times the receiver
// thread has the role (docs/adr/0023).
#pragma once

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

  // Called before any thread starts. Without a watch the receiver thread keeps the role.
  void start(std::unique_ptr<transport::Watch> watch) noexcept {
    watch_ = std::move(watch);
    if (watch_ == nullptr) taken_.store(1, std::memory_order_relaxed);
  }
  // nullptr: there is no watch.
  transport::Watch* watch() const noexcept { return watch_.get(); }

  // For the receiver thread. The next holder inherits the state that the holder has read and kept.
  bool take() noexcept {
    std::uint32_t free = 0;
    return taken_.compare_exchange_strong(free, 1, std::memory_order_acquire);
  }
  void give_up() noexcept { taken_.store(0, std::memory_order_release); }

  // For a waiting thread. The watch is paused while this thread has the role. give_to_watcher()
  // gives the role up before it resumes the watch: a receiver thread that wakes and finds the role
  // taken would poll.
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

}  // namespace gpurun::client
