// CarriedWatch: one lock, which is never held over a wait.
#include "transport/carrier/watch.h"

#include <utility>

namespace gpurun::transport::carrier {

void WatchPlace::set(CarriedWatch* watch) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  watch_.store(watch, std::memory_order_release);
}

void WatchPlace::want_room() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (CarriedWatch* const watch = get(); watch != nullptr) watch->want_room();
}

CarriedWatch::CarriedWatch(std::unique_ptr<sockets::SocketWatch> socket, Watched& watched,
                           WatchPlace& place)
    : socket_(std::move(socket)), watched_(watched), place_(place) {
  place_.set(this);
}

CarriedWatch::~CarriedWatch() { place_.set(nullptr); }

bool CarriedWatch::go_to_sleep() {
  bool wants_room = false;
  const bool awake = watched_.go_to_sleep(&wants_room);
  socket_->want_room(wants_room);
  // A sender that has left output in between may have called want_room() too early.
  if (!wants_room && watched_.wants_room()) want_room();
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
    if (pauses_ != 0 || watched_.heed_wake(socket_->woken_by_beside())) return {};
    if (deadline.passed()) return Status(Code::kDeadline, "watching");
  }
}

void CarriedWatch::pause() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pauses_++ != 0) return;
  const Stirs stirs = watched_.wake_up();
  if (stirs == Stirs::kNothing || std::exchange(socket_paused_, true)) return;
  // A connection that leaves its carrier meanwhile wakes the watcher once.
  if (stirs == Stirs::kBeside) {
    socket_->pause_beside();
  } else {
    socket_->pause();
  }
}

void CarriedWatch::receiver_sleeps() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pauses_ == 0 || std::exchange(socket_paused_, true)) return;
  socket_->pause();
}

void CarriedWatch::resume() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--pauses_ != 0) return;
  // First, because it takes an event from the carrier's descriptor that would wake the watcher.
  const bool awake = go_to_sleep();
  if (std::exchange(socket_paused_, false)) socket_->resume();
  if (awake) socket_->wake();
}

}  // namespace gpurun::transport::carrier
