// The queue of a stream and the loop that executes it.
#include "server/emulated/objects/stream.h"

#include "server/emulated/objects/context.h"
#include "server/emulated/objects/kernel_log.h"

namespace gpurun::emulated {
namespace {

std::uint64_t next_stream_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// What was enqueued under a number of kernel_log's runs under it.
class NumberedOperation final : public Operation {
 public:
  NumberedOperation(OperationPtr operation, std::uint64_t number)
      : operation_(std::move(operation)), number_(number) {}
  CUresult run(Context& context) override {
    kernel_log::set_running_number(number_);
    const CUresult result = operation_->run(context);
    kernel_log::set_running_number(0);
    return result;
  }
  bool runs_after_failure() const override { return operation_->runs_after_failure(); }
  bool is_mark() const override { return operation_->is_mark(); }

 private:
  const OperationPtr operation_;
  const std::uint64_t number_;
};

}  // namespace

Stream::Stream(std::shared_ptr<Context> context, unsigned flags, int priority)
    : Object(kKind),
      context_(std::move(context)),
      flags_(flags),
      priority_(priority),
      id_(next_stream_id()) {}

std::uint64_t Stream::enqueue(OperationPtr operation, std::vector<Dependency> dependencies) {
  if (const std::uint64_t number = kernel_log::number(); number != 0) {
    operation = std::make_shared<NumberedOperation>(std::move(operation), number);
  }
  bool start = false;
  std::uint64_t position = 0;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(operation), std::move(dependencies)});
    position = enqueued_.load(std::memory_order_relaxed) + 1;
    enqueued_.store(position, std::memory_order_release);
    start = !running_;
    running_ = true;
  }
  if (start && !run_soon(shared_from_this())) {
    // No thread: the caller executes the queue itself, which is slow but right.
    drain();
  }
  return position;
}

void Stream::drain() {
  std::unique_lock lock(mutex_);
  while (!queue_.empty()) {
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    for (const Dependency& dependency : entry.dependencies) {
      dependency.stream->wait_for(dependency.position);
    }
    if (entry.operation->is_mark()) {
      marking_.store(completed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    if (context_->sticky_error() == CUDA_SUCCESS || entry.operation->runs_after_failure()) {
      kernel_log::set_running_stream(id_);
      const CUresult result = entry.operation->run(*context_);
      if (result != CUDA_SUCCESS) context_->fail(result);
    }
    entry = Entry();  // What the operation holds is released before its completion is seen.
    lock.lock();
    completed_.fetch_add(1, std::memory_order_release);
    if (waiters_ > 0) completion_.notify_all();
  }
  running_ = false;
}

void Stream::wait_for(std::uint64_t position) const {
  if (reached(position)) return;
  std::unique_lock lock(mutex_);
  ++waiters_;
  completion_.wait(lock, [&] { return reached(position); });
  --waiters_;
}

std::shared_ptr<Capture> Stream::capture() const {
  if (!captured_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(mutex_);
  return capture_;
}

void Stream::set_capture(std::shared_ptr<Capture> capture) {
  const std::lock_guard lock(mutex_);
  capture_ = std::move(capture);
  captured_.store(capture_ != nullptr, std::memory_order_release);
}

}  // namespace gpurun::emulated
