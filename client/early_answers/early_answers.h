// EarlyAnswers: decides whether a call may be answered without a request, or before its work is
// complete. Each function says why. It sends nothing and waits for nothing.
//
// The folder has all these decisions, and what the client knows for them (docs/early-answers.md):
//
//   host_memory_use.h      What else may read or write the program's memory.
//   stream_progress.h      Which streams and contexts are complete, or have only quiet work.
//   event_completions.h    Which events are complete.
//   early_wait_limiter.h   Whether the device keeps up with the program.
//   quiet_work.h           Which work is quiet.
//   copy_answers.h, free_answers.h   Copies to the device, and calls that free memory.
//   deferred_errors.h      The failures of calls that were answered early.
//
// client/session/wait_answers.h answers waits and polls as this class decides. Two parts of the
// interposer do the same for copies and frees (copy_waits.h, implicit_wait.h).
//
// Any thread may call it, with its own lane.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "client/bulk/bulk.h"
#include "client/early_answers/early_wait_limiter.h"
#include "client/early_answers/event_completions.h"
#include "client/early_answers/host_memory_use.h"
#include "client/early_answers/stream_progress.h"
#include "client/log/handles.h"
#include "client/log/lane.h"
#include "client/log/stream_polls.h"

namespace gpurun::client {

class EarlyAnswers {
 public:
  struct Uses {
    const EventCompletions& events;
    const StreamProgress& progress;
    EarlyWaitLimiter& limiter;
    const HostMemoryUse& memory;
    Bulk& bulk;
    // GPURUN_SYNC=1. Nothing is answered early then.
    bool every_call_is_a_fence = false;
    std::chrono::steady_clock::duration ask_after_min = StreamPolls::kAskAfterMin;
    // Returns whether the device has written to memory of the program, or may have, and this
    // process does not have it yet (HostMirrorTraffic::is_due()). nullptr: no memory is mirrored.
    bool (*writes_are_due)(const void* of) = nullptr;
    const void* of = nullptr;
  };
  // The lane of a call, and whether its state is of this session (CallPath::has_adopted()).
  struct Caller {
    Lane& lane;
    bool adopted = false;
  };
  explicit EarlyAnswers(const Uses& uses) noexcept : uses_(uses) {}
  EarlyAnswers(const EarlyAnswers&) = delete;
  EarlyAnswers& operator=(const EarlyAnswers&) = delete;

  // Answers that keep CUDA's rule. They only save the request.

  // Returns whether what is waited for is known to be complete: a thread has waited for it, and
  // nothing was issued there since. This lane has made no call since its last fence, so it misses
  // no failure.
  bool idle(const Caller& caller, Waits waits, Handle context, Handle stream) const noexcept;
  // Returns whether all calls issued to `context` are known to be complete.
  bool known_complete(Handle context) const noexcept;
  // The worker will report the end of `record` of `event` unasked. Returns whether a poll may be
  // answered as "not ready" until then, because nothing can have shown this lane that the event is
  // complete.
  bool still_not_ready(const Caller& caller, Handle event, std::uint64_t record) const noexcept;

  // The program queries `stream` of `context`, as in CallSite. Returns the answer if the client
  // knows it: 0, or kResultNotReady while nothing can have shown the program that the stream is
  // complete (docs/adr/0009).
  std::optional<int> poll(const Caller& caller, Handle context, Handle stream) const noexcept;

  // Answers before the work is complete. The worker then keeps the order (protocol::kFlagBarrier).

  // Returns whether a call that CUDA completes before it returns may return earlier. Nothing but
  // the program's own threads may read or write the program's memory then. So the program can see
  // the work only by later calls, which the worker holds back.
  bool may_answer_early() const noexcept;
  // Returns whether a wait for the created `stream` of `context` may be posted, because it has only
  // quiet work to wait for (docs/adr/0033). If so, counts the wait as the lane's.
  bool may_wait(Lane& lane, Handle context, Handle stream) const noexcept;
  // Returns whether a wait for `record` of `event` may be posted. It must end an upload, the
  // program must have gone on behind it, and the device must keep up (docs/adr/0036). If so, counts
  // the wait as answered.
  bool may_wait_for_upload(const Lane& lane, Handle context, Handle stream,
                           const EventCompletions::Place& place) const noexcept;

  // Returns whether work on the device may read or write memory of the program (docs/adr/0040).
  bool device_may_use_memory() const noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  // Returns the last call that may have added work to the stream.
  std::uint64_t last_issued(const Lane& lane, Handle context, Handle stream) const noexcept;

  const Uses uses_;
};

}  // namespace gpurun::client
