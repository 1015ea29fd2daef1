// The queue of a stream and the loop that executes it.
#include "emulated/objects/stream.h"

#include <chrono>

#include "emulated/objects/context_state.h"
#include "emulated/objects/kernel_log.h"

namespace gpurun::emulated {
namespace {

// A full stream has room again when only this many wait, so that the enqueuing thread sleeps once
// for many.
constexpr std::uint64_t kQueuedRoom = Stream::kQueuedMax / 2;
constexpr auto kRoomWait = std::chrono::milliseconds(1);
// A queue that was longer frees its memory.
constexpr std::size_t kKeptEntriesMax = 2 * Stream::kQueuedMax;

std::uint64_t next_stream_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// An operation that was enqueued under a number of kernel_log, and runs under it.
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

Stream::Stream(std::shared_ptr<Context> context, ContextState& state, unsigned flags, int priority)
    : Object(kKind),
      context_(std::move(context)),
      state_(state),
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
    // No thread can be had. The caller executes the queue itself, which is slow but correct.
    drain();
  } else if (position - completed_.load(std::memory_order_relaxed) > kQueuedMax) {
    wait_for_room(position);
  }
  return position;
}

void Stream::drain() {
  std::unique_lock lock(mutex_);
  while (!queue_.empty()) {
    // All at once, because enqueuing threads want the lock too.
    batch_.swap(queue_);
    lock.unlock();
    for (Entry& entry : batch_) {
      // What the operation holds ends here, before it is complete.
      execute(std::move(entry));
      complete_one();
    }
    batch_.clear();
    if (batch_.capacity() > kKeptEntriesMax) batch_.shrink_to_fit();
    lock.lock();
  }
  running_ = false;
}

void Stream::execute(Entry entry) {
  for (const Dependency& dependency : entry.dependencies) {
    dependency.stream->wait_for(dependency.position);
  }
  if (entry.operation->is_mark()) {
    marking_.store(completed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  if (state_.sticky_error() == CUDA_SUCCESS || entry.operation->runs_after_failure()) {
    kernel_log::set_running_stream(id_);
    const CUresult result = entry.operation->run(*context_);
    if (result != CUDA_SUCCESS) state_.fail(result);
  }
}

// The effects of the operation happen before everything that a thread does after it finds it
// complete.
void Stream::complete_one() {
  const std::uint64_t completed = completed_.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (completed < awaited_.load(std::memory_order_seq_cst)) return;
  {
    const std::lock_guard lock(mutex_);
    // A thread that waits for a later position sets it again.
    awaited_.store(kNone, std::memory_order_relaxed);
  }
  completion_.notify_all();
}

void Stream::await_locked(std::uint64_t position) const {
  if (position < awaited_.load(std::memory_order_relaxed)) {
    awaited_.store(position, std::memory_order_seq_cst);
  }
}

void Stream::wait_for(std::uint64_t position) const {
  if (reached(position)) return;
  std::unique_lock lock(mutex_);
  while (true) {
    await_locked(position);
    if (completed_.load(std::memory_order_seq_cst) >= position) return;
    completion_.wait(lock);
  }
}

void Stream::wait_for_room(std::uint64_t position) {
  const std::uint64_t enough = position - kQueuedRoom;
  const auto end = std::chrono::steady_clock::now() + kRoomWait;
  std::unique_lock lock(mutex_);
  if (completed_.load(std::memory_order_relaxed) == stood_at_) return;
  while (true) {
    await_locked(enough);
    if (completed_.load(std::memory_order_seq_cst) >= enough) return;
    if (completion_.wait_until(lock, end) == std::cv_status::timeout) break;
  }
  stood_at_ = completed_.load(std::memory_order_relaxed);
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
