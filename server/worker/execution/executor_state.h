// ExecutorState: the inside of Executor, which no other file includes.
//
// executor.cc issues, call_runner.h runs one call, reply_sender.h answers.
// completion_queries.cc answers calls for which nothing is issued. stall_warning.cc warns of calls
// that wait for long. registering.cc registers staging memory. driver_tasks.cc runs driver calls
// for threads of the driver.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/bulk/bulk_lanes.h"
#include "server/worker/execution/brief_poll.h"
#include "server/worker/execution/call_bulk.h"
#include "server/worker/execution/call_kinds.h"
#include "server/worker/execution/call_runner.h"
#include "server/worker/execution/client_streams.h"
#include "server/worker/execution/completion_queries.h"
#include "server/worker/execution/completions.h"
#include "server/worker/execution/device_order.h"
#include "server/worker/execution/driver_tasks.h"
#include "server/worker/execution/event_registry.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/executor_inbox.h"
#include "server/worker/execution/outbox.h"
#include "server/worker/execution/parked_calls.h"
#include "server/worker/execution/queued_calls.h"
#include "server/worker/execution/reply_sender.h"
#include "server/worker/execution/staging_registration.h"
#include "server/worker/execution/stall_warning.h"
#include "server/worker/execution/stream_bound.h"
#include "server/worker/execution/thread_pool.h"
#include "server/worker/stats/observer.h"

namespace gpurun::server {

using protocol::Form;
using protocol::Order;
using protocol::RecordHeader;
using protocol::RecordView;

// In tests drivers come and go while threads stay, so each executor has a number of its own.
std::uint64_t next_executor_id() noexcept;

struct ExecutorState {
  ExecutorState(Executor& owner, const WorkerOptions& given, Outbox& out, BulkLanes* lanes)
      : executor(owner), options(given), outbox(out), bulk(lanes) {
    completions.set_told([this](Completions::Teller teller) {
      replies.run_due();
      // The caller of after() sends after its calls.
      if (teller == Completions::Teller::kHelper) outbox.send();
    });
    completions.set_soon([this](const std::function<bool()>& ready) { return poll.until(ready); });
  }

  Status accept(const RecordView& record);
  Status wait_for_room(std::unique_lock<std::mutex>& lock);

  void pump();
  void serve();
  void issue_held(bool look);
  void context_ended(std::uint64_t context, void* driver_context);

  void enqueue(std::unique_ptr<Call> call);
  void issue(IssueQueue::Item* item);
  void issue_mark(IssueQueue::Item* item);

  Executor& executor;
  const WorkerOptions options;
  Outbox& outbox;
  BulkLanes* const bulk;
  HandleTable handles;
  Observer* const observer = options.observer;  // nullptr: statistics are off.
  const std::uint64_t id = next_executor_id();

  const CallKinds kinds{options.handlers};
  ExecutorInbox inbox;
  ClientStreams streams{options.driver, handles, id};
  DeviceOrder order{options.driver, kinds, handles, streams, inbox, id};  // With the role.

  std::mutex role;  // Held by the thread that issues. It guards what follows.
  QueuedCalls queued{options.handlers, kinds, streams};
  StallWarning stall{{options, kinds, handles, streams, order, queued, inbox, outbox, id}};
  bool stopping = false;
  unsigned calls_unattended = 0;  // Since the last completions.attend().
  std::atomic<std::size_t> client_turns{0};
  std::optional<HelperThreadPool> pool{std::in_place};
  DriverTasks tasks{options.driver, handles, *pool, id};
  StagingRegistration registration{options.driver, *pool, inbox, id};
  Completions completions{options.driver, *pool, id};
  StreamBound bound{options.launch_depth, completions};
  EventRegistry events;
  CallBulk call_bulk{bulk};
  ReplySender replies{options, outbox, bulk, call_bulk, completions, events};
  CallRunner runner{
      {options, kinds, handles, order, stall, bound, call_bulk, replies, completions, outbox, id}};
  BriefPoll poll{replies};
  ParkedCalls parked{{runner, replies, completions, poll, *pool, tasks, inbox}};
  CompletionQueries queries{{options.handlers, kinds, order, queued, stall, runner, parked, replies,
                             tasks, *pool, inbox}};
  std::mutex end_mutex;
  std::function<void()> at_end;  // Guarded by end_mutex.
  std::thread thread;

  // Calls the last at_end, once.
  void end() {
    std::function<void()> what;
    {
      const std::lock_guard<std::mutex> lock(end_mutex);
      what.swap(at_end);
    }
    if (what) what();
  }
};

}  // namespace gpurun::server
