// Issuer: has the executor's role, and decides for each call: to the driver now, or into the queue.
//
// The role is a mutex. Its holder issues, and it is held across driver calls on purpose, so that
// one thread at a time issues. The decoder takes it in accept(), the receiver of a bulk connection
// in go_on(), and the executor's own thread for what comes to ExecutorInbox.
//
// The state behind the role is in QueuedCalls, DeviceOrder, StallWarning, ClientStreams (its traits
// of streams) and below. The role comes before every other lock of the executor.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "base/status.h"
#include "protocol/log/record.h"
#include "server/bulk/bulk_lanes.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/call_bulk.h"
#include "server/worker/execution/call_kinds.h"
#include "server/worker/execution/call_runner.h"
#include "server/worker/execution/completion_queries.h"
#include "server/worker/execution/completions.h"
#include "server/worker/execution/device_order.h"
#include "server/worker/execution/executor_inbox.h"
#include "server/worker/execution/outbox.h"
#include "server/worker/execution/parked_calls.h"
#include "server/worker/execution/queued_calls.h"
#include "server/worker/execution/reply_sender.h"
#include "server/worker/execution/stall_warning.h"
#include "server/worker/execution/worker_options.h"

namespace gpurun::server {

class Issuer {
 public:
  // Borrowed.
  struct Parts {
    Executor& executor;  // For the calls.
    const WorkerOptions& options;
    BulkLanes* bulk;
    const CallKinds& kinds;
    ExecutorInbox& inbox;
    DeviceOrder& order;
    QueuedCalls& queued;
    StallWarning& stall;
    CallBulk& call_bulk;
    ReplySender& replies;
    Completions& completions;
    CallRunner& runner;
    ParkedCalls& parked;
    CompletionQueries& queries;
    Outbox& outbox;
  };
  explicit Issuer(const Parts& parts) : parts_(parts) {}
  Issuer(const Issuer&) = delete;
  Issuer& operator=(const Issuer&) = delete;

  // Starts the executor's own thread.
  void start();
  // No call is issued any more. The thread ends at join().
  void stop();
  void join() { thread_.join(); }

  // See Executor.
  Status accept(std::span<const protocol::RecordView> calls);
  void go_on() noexcept;
  void begin_client_turn() noexcept;
  void end_client_turn() noexcept;

 private:
  void serve();
  // All of these with the role.
  void issue_held(bool look);
  void pump();
  Status accept(const protocol::RecordView& record);
  Status wait_for_room(std::unique_lock<std::mutex>& role);
  void enqueue(std::unique_ptr<Call> call);
  void issue(IssueQueue::Item* item);
  void issue_mark(IssueQueue::Item* item);
  bool may_run_at_once(const Call& call);
  void run_at_once(IssueQueue::Item* item);

  const Parts parts_;
  std::mutex role_;
  bool stopping_ = false;          // With the role.
  unsigned calls_unattended_ = 0;  // Since the last Completions::attend(). With the role.
  std::atomic<std::size_t> client_turns_{0};
  std::thread thread_;
};

}  // namespace gpurun::server
