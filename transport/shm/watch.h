// ShmWatch: a watch of a connection in shared memory, which watches its socket. The socket becomes
// readable only after the reader has set that it sleeps.
//
// pause() and resume() make no system call, unless the receiving thread itself goes to sleep in
// between. Then the bytes that wake that thread must not wake the watcher.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "transport/shm/sleeper.h"
#include "transport/sockets/watch.h"
#include "transport/transport.h"

namespace gpurun::transport::shm {

class ShmWatch final : public Watch {
 public:
  // `sleeper` and `place` belong to the connection and outlive this object. `place` points to this
  // object while it lives.
  ShmWatch(std::unique_ptr<sockets::SocketWatch> socket, Sleeper& sleeper,
           std::atomic<ShmWatch*>& place);
  ~ShmWatch() override;

  Status wait(Deadline deadline) override;
  void pause() noexcept override;
  void resume() noexcept override;
  int fd() const noexcept override { return socket_->fd(); }

  // The receiving thread goes to sleep at the socket. Pauses the socket's watch, if this watch is
  // paused.
  void receiver_sleeps() noexcept;

 private:
  const std::unique_ptr<sockets::SocketWatch> socket_;
  Sleeper& sleeper_;
  std::atomic<ShmWatch*>& place_;
  std::mutex mutex_;  // Guards all below, and sleeper_ while no thread receives.
  int pauses_ = 0;
  bool socket_paused_ = false;  // The socket's watch is paused with this one.
};

}  // namespace gpurun::transport::shm
