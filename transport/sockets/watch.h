// SocketWatch: a watch of a socket, by a oneshot epoll(7) that is armed while no thread
// receives.
//
// A thread in poll(2) would wake up for every byte, also for bytes that another thread is in
// recv(2) for. To disarm the epoll costs that other thread a system call, but no context switch.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/unique_fd.h"
#include "transport/sockets/connection.h"

namespace gpurun::transport::sockets {

class SocketWatch final : public Watch {
 public:
  // kResourceExhausted: no descriptor. `connection` outlives it.
  // `beside`: another descriptor that is watched in the same way, -1 for none.
  static Result<std::unique_ptr<SocketWatch>> of(const SocketConnection& connection, int fd_min,
                                                 int beside = -1);
  ~SocketWatch() override;

  Status wait(Deadline deadline) override;
  void pause() noexcept override;
  // Pauses only the descriptor beside the socket, by one system call less. Bytes of the socket wake
  // the watcher once. resume() ends it.
  void pause_beside() noexcept;
  void resume() noexcept override;
  int fd() const noexcept override { return epoll_.get(); }
  int second_fd() const noexcept override { return beside_.get(); }
  // Whether the other descriptor made wait() return. The socket's bytes make the next wait()
  // return. The watcher.
  bool woken_by_beside() const noexcept { return woken_by_beside_; }
  // Makes wait() return once, now or at its next call, unless the watch is paused by then. Any
  // thread.
  void wake() noexcept;
  // From now on wait() also returns when the socket has room to send, or no longer. Any thread.
  void want_room(bool wanted) noexcept;

 private:
  SocketWatch(const SocketConnection& connection, UniqueFd epoll, UniqueFd beside)
      : connection_(connection), epoll_(std::move(epoll)), beside_(std::move(beside)) {}
  // Call these with mutex_ held. arm() arms for `events`, once (epoll_ctl(2)). 0 disarms.
  void arm(std::uint32_t events) noexcept;
  void arm_beside(std::uint32_t events) noexcept;

  const SocketConnection& connection_;
  UniqueFd epoll_;
  // An epoll of the other descriptor alone. A disarmed epoll still takes errors, and a device's
  // descriptor wakes its waiters without a word about the kind of event. So without the epoll in
  // between each event would wake the watcher's thread inside the kernel.
  UniqueFd beside_;
  std::mutex mutex_;  // Held during epoll_ctl(2), which does not wait.
  int pauses_ = 0;    // Guarded by mutex_, as the next.
  bool woken_ = false;
  bool woken_by_beside_ = false;  // The watcher's.
  // For which events the socket is armed, and the other descriptor.
  std::uint32_t armed_ = 0;
  std::uint32_t armed_beside_ = 0;
  std::atomic<bool> wants_room_{false};  // Written under mutex_.
};

}  // namespace gpurun::transport::sockets
