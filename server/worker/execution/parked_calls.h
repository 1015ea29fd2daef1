// ParkedCalls: calls that wait for the device or that block in the driver. They have left the issue
// queue, or keep their place in it. They wait on helper threads, or for a completion.
//
// With the executor's role.
#pragma once

#include <memory>

#include "server/worker/execution/brief_poll.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/call_runner.h"
#include "server/worker/execution/completions.h"
#include "server/worker/execution/device_order.h"
#include "server/worker/execution/driver_tasks.h"
#include "server/worker/execution/executor_inbox.h"
#include "server/worker/execution/issue_queue.h"
#include "server/worker/execution/reply_sender.h"
#include "server/worker/execution/thread_pool.h"

namespace gpurun::server {

class ParkedCalls {
 public:
  // Borrowed.
  struct Parts {
    CallRunner& runner;
    ReplySender& replies;
    Completions& completions;
    BriefPoll& poll;
    HelperThreadPool& pool;
    DriverTasks& tasks;
    ExecutorInbox& inbox;
  };
  explicit ParkedCalls(const Parts& parts) : parts_(parts) {}
  ParkedCalls(const ParkedCalls&) = delete;
  ParkedCalls& operator=(const ParkedCalls&) = delete;

  // Continues a call with the outcome kParked or kAfterStream, and answers it.
  void go_on(std::unique_ptr<Call> call, const CallOutcome& outcome);
  // Runs and answers a call that is in no queue any more and that its client waits for.
  void finish_awaited(std::unique_ptr<Call> call);
  // Runs and answers an ordered host call on a helper thread, once the events `needed` are
  // complete. The item comes back by ExecutorInbox::put_ended().
  void run_ordered_host(IssueQueue::Item* item, DeviceOrder::OwedEvents needed);

 private:
  void park(std::unique_ptr<Call> call, const CallOutcome& outcome);
  void answer_after_stream(std::unique_ptr<Call> call, int (*wait)(Call&));

  const Parts parts_;
};

}  // namespace gpurun::server
