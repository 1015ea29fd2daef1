// LifeSigns: heartbeats to the worker, and the check for a worker that is silent. For the thread
// with the receiving role.
#pragma once

#include <chrono>
#include <string>

#include "base/status.h"
#include "client/session/log_sender.h"
#include "client/session/session_types.h"

namespace gpurun::client {

class LifeSigns {
 public:
  using Clock = std::chrono::steady_clock;

  LifeSigns(LogSender& sender, const SessionOptions& options) noexcept
      : sender_(sender), options_(options) {}

  // Call it before the threads start.
  void start() noexcept {
    last_heard_ = Clock::now();
    next_beat_ = last_heard_ + options_.heartbeat;
  }
  // The worker has sent something.
  void heard() noexcept { last_heard_ = Clock::now(); }
  // kDeadline: the worker was silent for too long.
  Status check_silence() const {
    if (Clock::now() - last_heard_ < options_.silence_deadline) return {};
    return Status(Code::kDeadline, "the server has sent nothing for " +
                                       std::to_string(options_.silence_deadline.count()) + " ms");
  }
  // Has the sender thread send a heartbeat if it is time.
  void beat_when_due() noexcept {
    if (Clock::now() < next_beat_) return;
    next_beat_ = Clock::now() + options_.heartbeat;
    sender_.send_heartbeat();
  }
  Clock::duration until_next_beat() const noexcept { return next_beat_ - Clock::now(); }

 private:
  LogSender& sender_;
  const SessionOptions& options_;
  Clock::time_point last_heard_{};
  Clock::time_point next_beat_{};
};

}  // namespace gpurun::client
