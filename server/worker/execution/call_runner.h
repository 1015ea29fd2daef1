// CallRunner: runs one call: in its context and stream, behind its barrier, by its handler.
//
// One thread at a time, with the executor's role. Ordered host calls, rests of calls and
// run_parked() are for helper threads, which run at the same time.
#pragma once

#include <cstdint>

#include "server/worker/execution/call.h"
#include "server/worker/execution/call_bulk.h"
#include "server/worker/execution/call_kinds.h"
#include "server/worker/execution/completions.h"
#include "server/worker/execution/device_order.h"
#include "server/worker/execution/handles.h"
#include "server/worker/execution/outbox.h"
#include "server/worker/execution/reply_sender.h"
#include "server/worker/execution/skipped_waits.h"
#include "server/worker/execution/stall_warning.h"
#include "server/worker/execution/stream_bound.h"
#include "server/worker/execution/worker_options.h"
#include "server/worker/stats/statistics_counter.h"

namespace gpurun::server {

class CallRunner {
 public:
  // The handlers of records that no row names (copy_calls.h, hot_calls.h).
  struct FormHandlers {
    Handler copy_in = nullptr;
    Handler copy_out = nullptr;
    Handler (*hot)(protocol::Form form) noexcept = nullptr;  // nullptr: the form has no handler.
  };
  // Borrowed.
  struct Parts {
    const WorkerOptions& options;
    const CallKinds& kinds;
    HandleTable& handles;
    DeviceOrder& order;
    StallWarning& stall;
    StreamBound& bound;
    CallBulk& call_bulk;
    ReplySender& replies;
    Completions& completions;
    SkippedWaits& skipped_waits;
    Outbox& outbox;
    std::uint64_t owner;  // That of enter_context().
    FormHandlers forms;
  };
  explicit CallRunner(const Parts& parts) : parts_(parts) {}
  CallRunner(const CallRunner&) = delete;
  CallRunner& operator=(const CallRunner&) = delete;

  // Issues the call. Does not answer it.
  CallOutcome run(Call& call);
  // Runs the rest of a call, once its stream or context has been waited for.
  int run_rest(Call& call, int (*rest)(Call&));
  // As run_rest(), on a helper thread, where `rest` may block. It enters the call's context. The
  // issuer has handled the stream and its barrier.
  int run_parked(Call& call, int (*rest)(Call&));

 private:
  int prepare(Call& call);
  bool is_short(const Call& call) const;
  bool keeps_context(const Call& call) const;
  CallOutcome run_uncounted(Call& call);
  CallOutcome run_handler(Call& call);
  CallOutcome run_hot(Call& call, Handler handler);

  const Parts parts_;
  StatisticsCounter* const statistics_ = parts_.options.statistics;  // nullptr: statistics are off.
};

}  // namespace gpurun::server
