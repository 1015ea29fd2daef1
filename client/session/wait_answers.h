// WaitAnswers: answers calls that wait or ask as EarlyAnswers decides. They cost no round trip
// (docs/adr/0009, 0024, 0033, 0036). See Session for what each function promises.
//
// Failures that were reported before the answer are delivered with it, as at a fence.
#pragma once

#include "base/bytes.h"
#include "client/early_answers/early_answers.h"
#include "client/log/lane.h"
#include "client/session/call_path.h"
#include "client/session/fences.h"
#include "client/session/known_state.h"
#include "client/session/session_shutdown.h"
#include "client/session/session_types.h"

namespace gpurun::client {

class WaitAnswers {
 public:
  struct Uses {
    CallPath& calls;
    Fences& fences;
    KnownState& known;
    const EarlyAnswers& early;
    SessionShutdown& shutdown;
    const SessionOptions& options;
  };
  explicit WaitAnswers(const Uses& uses) noexcept : uses_(uses) {}
  WaitAnswers(const WaitAnswers&) = delete;
  WaitAnswers& operator=(const WaitAnswers&) = delete;

  bool event(Lane& lane, const CallSite& site, bool wait, int* result);
  bool idle(Lane& lane, const CallSite& site, int* result);
  bool poll(Lane& lane, const CallSite& site, int* result);
  bool wait(Lane& lane, CallSite site, ByteView payload, int* result);
  bool wait(Lane& lane, const EventRecord& record, CallSite site, ByteView payload, int* result);
  EventRecord stream_of_record(Handle event);

 private:
  // Delivers what a fence would deliver: kernels' output, and the result of earlier failures.
  int deliver(Lane& lane, Handle context);
  EarlyAnswers::Caller caller(Lane& lane) const noexcept {
    return {lane, uses_.calls.has_adopted(lane)};
  }
  // Posts a wait without waiting for it. All later calls wait for it in the worker.
  int post_wait(Lane& lane, CallSite site, Work work, ByteView payload);

  const Uses uses_;
};

}  // namespace gpurun::client
