// ExecutorParts: what an Executor owns, in the order in which the parts need each other. Only
// executor.cc includes it.
//
// Each part states which thread may use it. None knows a part that comes after it. executor.h
// explains how they work together.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

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
#include "server/worker/execution/executor_inbox.h"
#include "server/worker/execution/issuer.h"
#include "server/worker/execution/outbox.h"
#include "server/worker/execution/parked_calls.h"
#include "server/worker/execution/queued_calls.h"
#include "server/worker/execution/reply_sender.h"
#include "server/worker/execution/skipped_waits.h"
#include "server/worker/execution/staging_registration.h"
#include "server/worker/execution/stall_warning.h"
#include "server/worker/execution/stream_bound.h"
#include "server/worker/execution/thread_pool.h"

namespace gpurun::server {

// In tests drivers come and go while threads stay, so each executor has a number of its own.
std::uint64_t next_executor_id() noexcept;

// A function that is called once at the end. Any thread.
class AtEnd {
 public:
  void set(std::function<void()> at_end) {
    const std::lock_guard lock(mutex_);
    at_end_ = std::move(at_end);
  }
  // Calls the last one, if it was not called.
  void call() {
    std::function<void()> what;
    {
      const std::lock_guard lock(mutex_);
      what.swap(at_end_);
    }
    if (what) what();
  }

 private:
  std::mutex mutex_;
  std::function<void()> at_end_;  // Under mutex_.
};

struct ExecutorParts {
  ExecutorParts(Executor& owner, const WorkerOptions& given, Outbox& out, BulkLanes* lanes,
                const CallRunner::FormHandlers& handlers_of_forms)
      : executor(owner), options(given), outbox(out), bulk(lanes), forms(handlers_of_forms) {
    completions.set_told([this](Completions::Teller teller) {
      replies.run_due();
      // The caller of after() sends after its calls.
      if (teller == Completions::Teller::kHelper) outbox.send();
    });
    completions.set_soon([this](const std::function<bool()>& ready) { return poll.until(ready); });
  }

  Executor& executor;
  const WorkerOptions options;
  Outbox& outbox;
  BulkLanes* const bulk;
  const CallRunner::FormHandlers forms;
  const std::uint64_t id = next_executor_id();
  AtEnd at_end;

  // What the client's names mean.
  HandleTable handles;
  const CallKinds kinds{options.handlers};
  ClientStreams streams{options.driver, handles, id};
  EventRegistry events;
  SkippedWaits skipped_waits;

  // Threads.
  ExecutorInbox inbox;
  std::optional<HelperThreadPool> pool{std::in_place};  // Ends before the other parts.
  Completions completions{options.driver, *pool, id, &skipped_waits};
  StagingRegistration registration{options.driver, *pool, inbox, id};

  // Order.
  DeviceOrder order{options.driver, kinds, handles, streams, inbox, id};
  QueuedCalls queued{options.handlers, kinds, streams};
  StallWarning stall{{options, kinds, handles, streams, order, queued, inbox, outbox, id}};
  StreamBound bound{options.launch_depth, completions};

  // Calls.
  CallBulk call_bulk{bulk};
  ReplySender replies{options, outbox, bulk, call_bulk, completions, events};
  DriverTasks tasks{options.driver, handles, *pool, id};
  CallRunner runner{{options, kinds, handles, order, stall, bound, call_bulk, replies, completions,
                     skipped_waits, outbox, id, forms}};
  BriefPoll poll{replies, options.spin};
  ParkedCalls parked{{runner, replies, completions, poll, *pool, tasks, inbox}};
  CompletionQueries queries{{options.handlers, kinds, order, queued, stall, runner, parked, replies,
                             tasks, *pool, inbox}};
  Issuer issuer{{executor, options, bulk, kinds, inbox, order, queued, stall, call_bulk, replies,
                 completions, runner, parked, queries, outbox}};
};

}  // namespace gpurun::server
