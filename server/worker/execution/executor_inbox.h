// ExecutorInbox: what other threads leave for the thread that has the executor's role, and the
// wake-ups of the executor's own thread.
//
// Any thread, except where a comment names one. Its mutex is a leaf: no thread takes another lock
// under it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/worker/execution/call.h"
#include "server/worker/execution/issue_queue.h"

namespace gpurun::server {

class ExecutorInbox {
 public:
  ExecutorInbox() = default;
  ExecutorInbox(const ExecutorInbox&) = delete;
  ExecutorInbox& operator=(const ExecutorInbox&) = delete;

  // The executor's thread looks at held calls soon.
  void wake() noexcept;
  // It looks at stalled calls at that time. Only the earliest time is kept.
  void wake_at(std::chrono::steady_clock::time_point when);
  // It ends. wait() returns kStop from now on.
  void stop();

  enum class Reason : std::uint8_t { kStop, kWork, kTime };
  // Blocks until there is something to do. The executor's thread. kTime: the time of wake_at() has
  // come, and it is forgotten.
  Reason wait();

  // An ordered host call has returned on its helper thread. Wakes.
  void put_ended(IssueQueue::Item* item);
  // With the role: passes each of them to `finish`, which takes no lock.
  template <typename Finish>
  void for_each_ended(Finish finish) {
    const std::lock_guard lock(mutex_);
    for (IssueQueue::Item* item : ended_) finish(item);
    ended_.clear();
  }

  // A call has waited on a helper thread for events, and can run now. Wakes.
  void put_waited(std::shared_ptr<Call> call);
  std::vector<std::shared_ptr<Call>> take_waited();

  // A client's context has ended. It is forgotten before the next call runs.
  void put_ended_context(std::uint64_t context);
  // Without an ended context it only exchanges a flag.
  std::vector<std::uint64_t> take_ended_contexts() {
    if (!contexts_ended_.exchange(false, std::memory_order_acq_rel)) return {};
    return take_contexts();
  }

 private:
  std::vector<std::uint64_t> take_contexts();

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable woken_;
  bool awake_ = false;
  bool stopping_ = false;
  std::optional<std::chrono::steady_clock::time_point> look_at_;
  std::vector<IssueQueue::Item*> ended_;
  std::vector<std::shared_ptr<Call>> waited_;
  std::vector<std::uint64_t> ended_contexts_;
  std::atomic<bool> contexts_ended_{false};  // ended_contexts_ is not empty.
};

}  // namespace gpurun::server
