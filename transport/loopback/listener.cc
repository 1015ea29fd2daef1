// LoopbackListener: pairs each connect() with an accept().
#include "transport/loopback/listener.h"

#include "transport/loopback/connection.h"

namespace gpurun::transport::loopback {

Result<std::unique_ptr<Connection>> LoopbackListener::accept(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return stopped_ || !waiting_.empty(); };
  if (deadline.is_never()) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_until(lock, deadline.when(), ready)) {
    return Status(Code::kDeadline, "no connection came to the loopback listener");
  }
  if (stopped_) return Status(Code::kPeerGone, "the loopback listener was shut down");
  std::unique_ptr<Connection> connection = std::move(waiting_.front());
  waiting_.pop_front();
  return connection;
}

Result<std::unique_ptr<Connection>> LoopbackListener::connect() {
  Pair pair = connect_pair();
  const std::lock_guard lock(mutex_);
  if (stopped_) return Status(Code::kUnavailable, "the loopback listener was shut down");
  waiting_.push_back(std::move(pair.first));
  changed_.notify_all();
  return std::move(pair.second);
}

void LoopbackListener::shut_down() noexcept {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace gpurun::transport::loopback
