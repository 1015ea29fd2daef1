// CarriedWatch: one lock, which is never held over a wait.
#include "transport/carrier/watch.h"

#include <utility>

namespace gpurun::transport::carrier {

CarriedWatch::CarriedWatch(std::unique_ptr<sockets::SocketWatch> socket, Watched& watched,
                           std::atomic<CarriedWatch*>& place)
    : socket_(std::move(socket)), watched_(watched), place_(place) {
  place_.store(this, std::memory_order_release);
}

CarriedWatch::~CarriedWatch() { place_.store(nullptr, std::memory_order_release); }

bool CarriedWatch::go_to_sleep() {
  bool wants_room = false;
  const bool awake = watched_.go_to_sleep(&wants_room);
  socket_->want_room(wants_room);
  return awake;
}

Status CarriedWatch::wait(Deadline deadline) {
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (pauses_ == 0 && go_to_sleep()) return {};
      // A kWake on its way now was sent for an earlier sleep, and the receiving thread will read
      // it.
      if (pauses_ != 0 && !std::exchange(socket_paused_, true)) socket_->pause();
    }
    GPURUN_RETURN_IF_ERROR(socket_->wait(deadline));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (pauses_ != 0 || watched_.heed_wake()) return {};
    if (deadline.passed()) return Status(Code::kDeadline, "watching");
  }
}

void CarriedWatch::pause() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pauses_++ != 0 || !watched_.wake_up()) return;
  if (!std::exchange(socket_paused_, true)) socket_->pause();
}

void CarriedWatch::receiver_sleeps() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pauses_ == 0 || std::exchange(socket_paused_, true)) return;
  socket_->pause();
}

void CarriedWatch::resume() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--pauses_ != 0) return;
  if (std::exchange(socket_paused_, false)) socket_->resume();
  if (go_to_sleep()) socket_->wake();
}

}  // namespace gpurun::transport::carrier
