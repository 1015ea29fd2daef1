// Watch of a connection in shared memory: the watch of its socket, which is readable only after the
// reader has said that it sleeps.
//
// To pause it and to resume it costs no system call, unless the thread that receives meanwhile goes
// to sleep itself: then the bytes that wake that one must not wake the watcher.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "transport/shm/sleeper.h"
#include "transport/tcp/watch.h"
#include "transport/transport.h"

namespace gpurun::transport::shm {

class ShmWatch final : public Watch {
 public:
  // Both are the connection's and outlive it; it stands in `place` as long as it lives.
  ShmWatch(std::unique_ptr<tcp::TcpWatch> socket, Sleeper& sleeper, std::atomic<ShmWatch*>& place);
  ~ShmWatch() override;

  Status wait(Deadline deadline) override;
  void pause() noexcept override;
  void resume() noexcept override;
  int fd() const noexcept override { return socket_->fd(); }

  // The receiving thread goes to sleep at the socket, if it is for it that this is paused.
  void receiver_sleeps() noexcept;

 private:
  const std::unique_ptr<tcp::TcpWatch> socket_;
  Sleeper& sleeper_;
  std::atomic<ShmWatch*>& place_;
  std::mutex mutex_;  // Guards all below, and sleeper_ while nobody receives.
  int pauses_ = 0;
  bool socket_paused_ = false;  // With ours.
};

}  // namespace gpurun::transport::shm
