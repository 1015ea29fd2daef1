// QueuedCalls: the calls that are decoded and not issued, what they cost in memory, and which of
// them the client has answered already.
//
// One thread at a time, with the executor's role.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "protocol/log/record.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/call_kinds.h"
#include "server/worker/execution/client_streams.h"
#include "server/worker/execution/issue_queue.h"

namespace gpurun::server {

class QueuedCalls {
 public:
  // Borrows all.
  QueuedCalls(const Handlers& handlers, const CallKinds& kinds, ClientStreams& streams)
      : handlers_(handlers), kinds_(kinds), streams_(streams) {}
  QueuedCalls(const QueuedCalls&) = delete;
  QueuedCalls& operator=(const QueuedCalls&) = delete;

  static Call& call_of(const IssueQueue::Item* item) { return *static_cast<Call*>(item->user()); }

  void push(std::unique_ptr<Call> call);
  // Queues a query behind the queued calls that were answered early and that its lane counts as
  // done. Returns false if the lane has no such call. `call` then stays with the caller.
  bool push_behind_early(std::unique_ptr<Call>& call);
  // See IssueQueue.
  IssueQueue::Item* take() { return queue_.take(); }
  void hold(IssueQueue::Item* item) { queue_.hold(item); }
  void retry_held() { queue_.retry_held(); }
  // Ends the item and its call, and notifies the thread that waits for room.
  void finish(IssueQueue::Item* item);
  // Ends a mark. The call behind it stays.
  void finish_mark(IssueQueue::Item* item);
  // Ends all. No call is being issued.
  void clear();

  // For looks only.
  const IssueQueue& queue() const noexcept { return queue_; }
  // True for a call that CUDA completes before it returns, and that was answered early.
  bool is_early(const protocol::RecordHeader& header) const {
    return early_key(header).has_value();
  }

  std::size_t bytes() const noexcept { return bytes_; }
  // Releases the role until a call has ended or notify().
  void wait_for_change(std::unique_lock<std::mutex>& role) { changed_.wait(role); }
  void notify() { changed_.notify_all(); }

 private:
  using EarlyKey = std::pair<std::uint32_t, std::uint64_t>;  // Lane and context.
  std::optional<EarlyKey> early_key(const protocol::RecordHeader& header) const;
  void forget_early(const IssueQueue::Item* item);
  static std::size_t cost(const Call& call);

  const Handlers& handlers_;
  const CallKinds& kinds_;
  ClientStreams& streams_;
  IssueQueue queue_;
  std::size_t bytes_ = 0;
  std::map<EarlyKey, IssueQueue::Item*> early_;  // The last call of each kind for each lane.
  std::condition_variable changed_;
};

}  // namespace gpurun::server
