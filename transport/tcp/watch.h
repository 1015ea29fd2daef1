// Watch of a TCP socket: a oneshot epoll(7) that is armed while nobody receives.
//
// A thread in poll(2) would be woken by every byte, also by those that another thread is in recv(2)
// for; taking the socket's events away costs that other thread a system call and no switch.
#pragma once

#include <cstdint>
#include <mutex>

#include "base/unique_fd.h"
#include "transport/tcp/connection.h"

namespace gpurun::transport::tcp {

class TcpWatch final : public Watch {
 public:
  // kResourceExhausted: no descriptor. `connection` outlives it.
  static Result<std::unique_ptr<TcpWatch>> of(const TcpConnection& connection, int fd_min);
  ~TcpWatch() override;

  Status wait(Deadline deadline) override;
  void pause() noexcept override;
  void resume() noexcept override;
  int fd() const noexcept override { return epoll_.get(); }
  // Unless it is paused by then, wait() returns once, now or when it is called next. Any thread.
  void wake() noexcept;

 private:
  TcpWatch(const TcpConnection& connection, UniqueFd epoll)
      : connection_(connection), epoll_(std::move(epoll)) {}
  // With the mutex held. For these events, once (epoll_ctl(2)); 0: for none.
  void arm(std::uint32_t events) noexcept;

  const TcpConnection& connection_;
  UniqueFd epoll_;
  std::mutex mutex_;  // Over epoll_ctl(2), which does not wait.
  int pauses_ = 0;    // Guarded by mutex_, as the next.
  bool woken_ = false;
};

}  // namespace gpurun::transport::tcp
