// Stream: an ordered queue of operations that a thread of the pool executes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "emulated/objects/handle_table.h"
#include "emulated/objects/operation.h"
#include "emulated/objects/runner_pool.h"

namespace gpurun::emulated {

class Capture;
class Context;
class ContextState;

// Any thread. Operations run one after the other, in the order of enqueue(). Only the legacy stream
// (see Context::issue) and events order operations of different streams.
class Stream final : public Object, public Runnable, public std::enable_shared_from_this<Stream> {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kStream;
  static constexpr std::uint64_t kQueuedMax = 1024;

  // A point in another stream that an operation waits for before it starts.
  struct Dependency {
    std::shared_ptr<Stream> stream;
    std::uint64_t position;
  };

  // `state` is that of `context`.
  Stream(std::shared_ptr<Context> context, ContextState& state, unsigned flags, int priority);

  Context& context() const { return *context_; }
  std::shared_ptr<Context> shared_context() const { return context_; }
  unsigned flags() const { return flags_; }
  int priority() const { return priority_; }
  // Whether the legacy stream waits for it and it waits for the legacy stream.
  bool is_blocking() const { return (flags_ & CU_STREAM_NON_BLOCKING) == 0; }
  std::uint64_t id() const { return id_; }

  // Appends `operation` and returns its position, counted from 1. When no thread can be had, the
  // caller executes the queue itself. With more than kQueuedMax operations queued, the caller waits
  // a moment for the stream to catch up, because a GPU's queues are bounded too. It does not wait
  // again for a stream that made no progress.
  std::uint64_t enqueue(OperationPtr operation, std::vector<Dependency> dependencies);

  std::uint64_t position() const { return enqueued_.load(std::memory_order_acquire); }
  bool reached(std::uint64_t position) const {
    return completed_.load(std::memory_order_acquire) >= position;
  }
  // A mark that is being executed may have been seen already, so it is waited for.
  bool is_idle() const {
    const std::uint64_t last = position();
    if (!reached(last) && marking_.load(std::memory_order_acquire) >= last) wait_for(last);
    return reached(last);
  }
  // Blocks until `position` is complete.
  void wait_for(std::uint64_t position) const;

  // The capture that records this stream's operations instead, or nullptr.
  std::shared_ptr<Capture> capture() const;
  void set_capture(std::shared_ptr<Capture> capture);

  void drain() override;

  // Set by destroy. The handle is gone, but what is queued still runs.
  std::atomic<bool> destroyed{false};

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Entry {
    OperationPtr operation;
    std::vector<Dependency> dependencies;
  };

  void execute(Entry entry);
  void complete_one();
  // Makes the completion of `position` wake the waiters. Called with the mutex held.
  void await_locked(std::uint64_t position) const;
  void wait_for_room(std::uint64_t position);

  const std::shared_ptr<Context> context_;
  ContextState& state_;
  const unsigned flags_;
  const int priority_;
  const std::uint64_t id_;

  mutable std::mutex mutex_;
  mutable std::condition_variable completion_;
  std::vector<Entry> queue_;
  bool running_ = false;
  std::vector<Entry> batch_;  // Being executed. Only the executing thread uses it.
  // The completed count when a wait for room timed out.
  std::uint64_t stood_at_ = kNone;
  std::atomic<std::uint64_t> enqueued_{0};
  std::atomic<std::uint64_t> completed_{0};
  // The first position that a thread sleeps for, written under the mutex. A completing thread
  // writes completed_ and then reads this. A thread that goes to sleep writes this and then reads
  // completed_. So one of them sees the other.
  mutable std::atomic<std::uint64_t> awaited_{kNone};
  std::atomic<std::uint64_t> marking_{0};  // The position of the last mark that was begun.
  std::atomic<bool> captured_{false};
  std::shared_ptr<Capture> capture_;
};

using StreamPtr = std::shared_ptr<Stream>;

}  // namespace gpurun::emulated
