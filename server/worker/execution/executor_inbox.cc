// ExecutorInbox: one mutex and one condition variable for all that wakes the executor's thread.
#include "server/worker/execution/executor_inbox.h"

#include <utility>

namespace gpurun::server {

void ExecutorInbox::wake() noexcept {
  {
    const std::lock_guard lock(mutex_);
    awake_ = true;
  }
  woken_.notify_one();
}

void ExecutorInbox::wake_at(std::chrono::steady_clock::time_point when) {
  {
    const std::lock_guard lock(mutex_);
    if (look_at_.has_value() && *look_at_ <= when) return;
    look_at_ = when;
    awake_ = true;
  }
  woken_.notify_one();
}

void ExecutorInbox::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
}

ExecutorInbox::Reason ExecutorInbox::wait() {
  bool look = false;
  std::unique_lock lock(mutex_);
  const auto called = [this] { return awake_ || stopping_; };
  if (look_at_.has_value()) {
    woken_.wait_until(lock, *look_at_, called);
    look = std::chrono::steady_clock::now() >= *look_at_;
  } else {
    woken_.wait(lock, called);
  }
  if (stopping_) return Reason::kStop;
  awake_ = false;
  if (look) look_at_.reset();
  return look ? Reason::kTime : Reason::kWork;
}

void ExecutorInbox::put_ended(IssueQueue::Item* item) {
  {
    const std::lock_guard lock(mutex_);
    ended_.push_back(item);
    awake_ = true;
  }
  woken_.notify_one();
}

void ExecutorInbox::put_waited(std::shared_ptr<Call> call) {
  {
    const std::lock_guard lock(mutex_);
    waited_.push_back(std::move(call));
    awake_ = true;
  }
  woken_.notify_one();
}

std::vector<std::shared_ptr<Call>> ExecutorInbox::take_waited() {
  std::vector<std::shared_ptr<Call>> calls;
  const std::lock_guard lock(mutex_);
  calls.swap(waited_);
  return calls;
}

void ExecutorInbox::put_ended_context(std::uint64_t context) {
  const std::lock_guard lock(mutex_);
  ended_contexts_.push_back(context);
  contexts_ended_.store(true, std::memory_order_release);
}

std::vector<std::uint64_t> ExecutorInbox::take_contexts() {
  std::vector<std::uint64_t> contexts;
  const std::lock_guard lock(mutex_);
  contexts.swap(ended_contexts_);
  return contexts;
}

}  // namespace gpurun::server
