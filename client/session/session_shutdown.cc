// The end of the peer: all waiting threads are woken, and every call returns kResultPeerGone from
// now on. One message gives the reason.
#include <chrono>

#include "base/log.h"
#include "client/log/lane_registry.h"
#include "client/process/fork_guard.h"
#include "client/session/session_impl.h"
#include "client/session/worker_exit_page.h"
#include "driver_abi/row.h"

namespace gpurun::client {

void Session::Impl::die(Status cause) {
  {
    const std::lock_guard<std::mutex> lock(death_mutex);
    if (!death.ok() || ending.load(std::memory_order_acquire)) return;
    death = cause;
  }
  // Calls wait during this. A thread that learns of the end may end the process before the message.
  std::string how;
  if (channels.deaths != nullptr && cause.code() == Code::kPeerGone) {
    how = channels.deaths->ask(channels.id, kNewsPatience);
    if (said_goodbye.load(std::memory_order_acquire)) how.clear();  // The reason says more.
  }
  died.notify_all();
  const driver_abi::Row* row = driver_abi::find_row(last_opcode.load(std::memory_order_relaxed));
  log::write(log::Level::kError,
             "%s%s%s; the last call was %s (number %llu). Every CUDA call fails from now on with "
             "CUDA_ERROR_DEVICE_UNAVAILABLE.",
             channels.server_name.empty() ? "the server" : channels.server_name.c_str(),
             how.empty() ? " is gone: " : ": ", how.empty() ? cause.message().c_str() : how.c_str(),
             row == nullptr ? "none" : row->symbol,
             static_cast<unsigned long long>(log.last_sequence()));
  session->dead_.store(true, std::memory_order_release);
  channels.log->shut_down();
  for (auto& connection : channels.bulk) connection->shut_down();
  if (bulk != nullptr) bulk->end();
  doorbell.ring();
  {
    const std::lock_guard<std::mutex> lock(room_mutex);
    room.notify_all();
  }
  wake_lanes();
}

// A worker that ends sends a goodbye on the log and then closes all connections. On the way one may
// overtake the other.
void Session::Impl::connection_failed(Status cause) {
  constexpr std::chrono::milliseconds kLastWords{500};
  if (cause.code() == Code::kPeerGone) {
    std::unique_lock<std::mutex> lock(death_mutex);
    died.wait_for(lock, kLastWords,
                  [this] { return !death.ok() || ending.load(std::memory_order_acquire); });
  }
  die(std::move(cause));
}

void Session::Impl::wake_lanes() {
  const auto wake = [](Lane& lane, void*) {
    // Under its mutex: the lane either sees the change or is already asleep.
    const std::lock_guard<std::mutex> lock(lane.mutex_);
    lane.arrived_.notify_all();
  };
  for_each_lane(wake, nullptr);
}

void Session::Impl::completed_through(std::uint64_t number) {
  std::uint64_t before = bulk_completions.load(std::memory_order_relaxed);
  while (before < number &&
         !bulk_completions.compare_exchange_weak(before, number, std::memory_order_release)) {
  }
  wake_lanes();
}

Status Session::death() const {
  const std::lock_guard<std::mutex> lock(impl_->death_mutex);
  return impl_->death;
}

}  // namespace gpurun::client
