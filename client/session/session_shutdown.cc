// SessionShutdown: one message gives the reason, and then all waiting threads are woken. Every call
// returns kResultPeerGone from then on.
#include "client/session/session_shutdown.h"

#include <chrono>
#include <string>
#include <utility>

#include "base/log.h"
#include "client/session/worker_exit_page.h"
#include "driver_abi/row.h"

namespace gpurun::client {

void SessionShutdown::die(Status cause) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!death_.ok() || ending()) return;
    death_ = cause;
  }
  // Calls wait during this. A thread that learns of the end may end the process before the message.
  std::string how;
  if (channels_.deaths != nullptr && cause.code() == Code::kPeerGone) {
    how = channels_.deaths->ask(channels_.id, kNewsPatience);
    // The reason in the goodbye says more.
    if (said_goodbye_.load(std::memory_order_acquire)) how.clear();
  }
  died_.notify_all();
  const driver_abi::Row* row = driver_abi::find_row(last_opcode_.load(std::memory_order_relaxed));
  log::write(log::Level::kError,
             "%s%s%s; the last call was %s (number %llu). Every CUDA call fails from now on with "
             "CUDA_ERROR_DEVICE_UNAVAILABLE.",
             channels_.server_name.empty() ? "the server" : channels_.server_name.c_str(),
             how.empty() ? " is gone: " : ": ", how.empty() ? cause.message().c_str() : how.c_str(),
             row == nullptr ? "none" : row->symbol,
             static_cast<unsigned long long>(log_.last_sequence()));
  stop_.writes(stop_.user);
  dead_.store(true, std::memory_order_release);
  stop_.all(stop_.user);
}

// A worker that ends sends a goodbye on the log and then closes all connections. On the way one may
// overtake the other.
void SessionShutdown::connection_failed(Status cause) {
  constexpr std::chrono::milliseconds kLastWords{500};
  if (cause.code() == Code::kPeerGone) {
    std::unique_lock<std::mutex> lock(mutex_);
    died_.wait_for(lock, kLastWords, [this] { return !death_.ok() || ending(); });
  }
  die(std::move(cause));
}

Status SessionShutdown::death() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return death_;
}

}  // namespace gpurun::client
