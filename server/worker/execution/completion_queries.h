// CompletionQueries: whether a stream or an event is done, and the time between two events.
//
// A query waits only where a local driver would have waited already. Work that is still queued is
// not done. A call that was answered early is waited for by the lane that was answered. The queries
// of every lane wait for an early answered wait (docs/adr/0033, 0036) and for a free (0038). Only
// queries show the end of such a call, and the lane that was answered may have notified the others.
// Calls that end objects which work on the device may need wait in the same way.
//
// With the executor's role. The waits are on helper threads.
#pragma once

#include <memory>

#include "protocol/log/record.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/call_kinds.h"
#include "server/worker/execution/call_runner.h"
#include "server/worker/execution/device_order.h"
#include "server/worker/execution/driver_tasks.h"
#include "server/worker/execution/executor_inbox.h"
#include "server/worker/execution/parked_calls.h"
#include "server/worker/execution/queued_calls.h"
#include "server/worker/execution/reply_sender.h"
#include "server/worker/execution/stall_warning.h"
#include "server/worker/execution/thread_pool.h"

namespace gpurun::server {

class CompletionQueries {
 public:
  // Borrowed.
  struct Parts {
    const Handlers& handlers;
    const CallKinds& kinds;
    DeviceOrder& order;
    QueuedCalls& queued;
    StallWarning& stall;
    CallRunner& runner;
    ParkedCalls& parked;
    ReplySender& replies;
    DriverTasks& tasks;
    HelperThreadPool& pool;
    ExecutorInbox& inbox;
  };
  explicit CompletionQueries(const Parts& parts) : parts_(parts) {}
  CompletionQueries(const CompletionQueries&) = delete;
  CompletionQueries& operator=(const CompletionQueries&) = delete;

  // A query has come. It is answered, or waits.
  void accept(std::unique_ptr<Call> query);
  // As accept(), for a query that has waited in the queue.
  void answer(std::unique_ptr<Call> query);

  using OwedEvents = DeviceOrder::OwedEvents;
  // Returns the events behind calls that were answered early and may still need what this call
  // ends. A free that is awaited is answered behind its own mark.
  OwedEvents needed_still(const protocol::RecordHeader& header);
  // The call ends an object and has to wait for others: the caller passes it to wait_behind(). No
  // other call waits for it meanwhile.
  bool waits_for_others(const Call& call, const OwedEvents& needed) const;
  // Waits for the events, and for the helpers of a context that the call ends. Then go_on() runs
  // the call.
  void wait_behind(std::shared_ptr<Call> call, OwedEvents owed);
  // Continues queries after their wait, and calls that end an object after theirs.
  void go_on();

 private:
  bool asks_about_queued(const Call& query) const;
  void ask_the_driver(Call& query);
  bool would_end_what_helpers_wait_for(const protocol::RecordHeader& header) const;

  const Parts parts_;
};

}  // namespace gpurun::server
