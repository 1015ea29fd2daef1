// HelperThreadPool: idle threads wait for work. A new thread starts when no thread is idle.
#include "server/worker/execution/thread_pool.h"

#include <system_error>

#include "base/thread_name.h"

namespace gpurun::server {

HelperThreadPool::~HelperThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status HelperThreadPool::run(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return Status(Code::kResourceExhausted, "no more work is taken");
  if (idle_ <= waiting_.size() && threads_.size() < kHelperThreadsMax) {
    try {
      threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error& error) {
      if (threads_.empty()) return Status(Code::kResourceExhausted, error.what());
    }
  }
  waiting_.push_back(std::move(work));
  changed_.notify_one();
  return {};
}

void HelperThreadPool::serve() {
  name_this_thread("gpurun-wait");
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    --idle_;
    if (waiting_.empty()) return;
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace gpurun::server
