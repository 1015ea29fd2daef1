// BriefPoll: a short poll before a helper thread waits, because waking a helper takes as long as
// work that ends within a moment. Polling stops where that is rare (docs/adr/0029).
//
// until(): the executor's role, so calls of other threads wait meanwhile. helper_waited(): any
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "base/brief_spin.h"
#include "server/worker/execution/reply_sender.h"

namespace gpurun::server {

class BriefPoll {
 public:
  // `span`: the longest time of one poll. 0: it looks once.
  BriefPoll(ReplySender& replies, std::chrono::microseconds span)
      : replies_(replies), span_(span), spin_(span) {}
  BriefPoll(const BriefPoll&) = delete;
  BriefPoll& operator=(const BriefPoll&) = delete;

  // Polls `ready` for a moment. Returns whether it became true. What the client may wait for is
  // sent first.
  bool until(const std::function<bool()>& ready) {
    if (waited_briefly_.exchange(false, std::memory_order_relaxed)) spin_.slept({});
    replies_.send_all();
    return span_.count() == 0 ? ready() : spin_.wait(ready);
  }
  // A helper has waited since then. Notes whether longer polling would have paid off.
  void helper_waited(BriefSpin::Clock::time_point begin) noexcept {
    if (BriefSpin::Clock::now() - begin < 2 * span_) {
      waited_briefly_.store(true, std::memory_order_relaxed);
    }
  }

 private:
  ReplySender& replies_;
  const std::chrono::microseconds span_;
  BriefSpin spin_;
  std::atomic<bool> waited_briefly_{false};  // A helper has, since the last until().
};

}  // namespace gpurun::server
