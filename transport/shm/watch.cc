// ShmWatch: one lock, which is never held over a wait.
#include "transport/shm/watch.h"

#include <utility>

namespace gpurun::transport::shm {

ShmWatch::ShmWatch(std::unique_ptr<sockets::SocketWatch> socket, Sleeper& sleeper,
                   std::atomic<ShmWatch*>& place)
    : socket_(std::move(socket)), sleeper_(sleeper), place_(place) {
  place_.store(this, std::memory_order_release);
}

ShmWatch::~ShmWatch() { place_.store(nullptr, std::memory_order_release); }

Status ShmWatch::wait(Deadline deadline) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (pauses_ == 0 && sleeper_.go_to_sleep()) return {};
    // A wake-up byte on its way now was sent for an earlier sleep, and the receiving thread will
    // read it.
    if (pauses_ != 0 && !std::exchange(socket_paused_, true)) socket_->pause();
  }
  return socket_->wait(deadline);
}

void ShmWatch::pause() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pauses_++ == 0) sleeper_.wake_up();
}

void ShmWatch::receiver_sleeps() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pauses_ == 0 || std::exchange(socket_paused_, true)) return;
  socket_->pause();
}

void ShmWatch::resume() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--pauses_ != 0) return;
  if (std::exchange(socket_paused_, false)) socket_->resume();
  if (sleeper_.go_to_sleep()) socket_->wake();
}

}  // namespace gpurun::transport::shm
