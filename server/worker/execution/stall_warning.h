// StallWarning: one warning to the program about calls that wait for long behind another thread's
// early answer (to a copy, a free or a wait).
//
// That thread may have notified this one, so nothing may pass the early call. But the worker cannot
// see whether it has. If it has not, and the work before the early call waits for the stalled call,
// both calls deadlock (docs/adr/0016, 0038). So after a while the program gets one warning with the
// remedy.
//
// One thread at a time, with the executor's role.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "protocol/log/record.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/call_kinds.h"
#include "server/worker/execution/client_streams.h"
#include "server/worker/execution/device_order.h"
#include "server/worker/execution/executor_inbox.h"
#include "server/worker/execution/handles.h"
#include "server/worker/execution/outbox.h"
#include "server/worker/execution/queued_calls.h"
#include "server/worker/execution/worker_options.h"

namespace gpurun::server {

class StallWarning {
 public:
  // What it looks at, and where its warning goes. Borrowed.
  struct Parts {
    const WorkerOptions& options;
    const CallKinds& kinds;
    HandleTable& handles;
    ClientStreams& streams;
    DeviceOrder& order;
    const QueuedCalls& queued;
    ExecutorInbox& inbox;
    Outbox& outbox;
    std::uint64_t owner;  // That of enter_context().
  };
  explicit StallWarning(const Parts& parts) : parts_(parts) {}
  StallWarning(const StallWarning&) = delete;
  StallWarning& operator=(const StallWarning&) = delete;

  // `call` is about to be issued behind the barrier. Its context is current, and still is after
  // this.
  void note_on_device(const Call& call);
  // A query is about to wait behind a free of another lane.
  void note_query(const protocol::RecordHeader& header);
  // A call with this header is about to be queued.
  void note_in_queue(const protocol::RecordHeader& header);
  // Warns of calls that still wait after options.stall_warning_after. The executor's own thread, at
  // the time for which this object has set its inbox.
  void look();

 private:
  struct Stall {
    protocol::RecordHeader call;
    protocol::RecordHeader early;  // The call before it that was answered early.
    void* event = nullptr;         // Behind that call. nullptr: it is not issued.
    std::chrono::steady_clock::time_point since;
  };

  bool cuda_orders(const protocol::RecordHeader& later, const protocol::RecordHeader& early);
  bool may_note_on_device(const protocol::RecordHeader& header);
  void keep_on_device(const protocol::RecordHeader& header);
  bool lasts(const Stall& stall);
  void warn(const Stall& stall);

  const Parts parts_;
  std::optional<Stall> on_device_, in_queue_;  // The first of each that may still wait.
  bool warned_ = false;
};

}  // namespace gpurun::server
