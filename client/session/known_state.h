// KnownState: what the client knows without a round trip. The thread that reads the log adds what
// the worker reports. Calls are answered from it. Each part has its own rules for threads.
#pragma once

#include "client/early_answers/deferred_errors.h"
#include "client/early_answers/early_wait_limiter.h"
#include "client/early_answers/event_completions.h"
#include "client/early_answers/stream_progress.h"
#include "client/session/device_output.h"
#include "client/session/session_types.h"

namespace gpurun::client {

struct KnownState {
  explicit KnownState(const SessionOptions& options) noexcept
      : early_waits(options.ahead_slack), output(options.output) {}

  DeferredErrors errors;
  EventCompletions events;
  StreamProgress progress;
  EarlyWaitLimiter early_waits;
  DeviceOutput output;
};

}  // namespace gpurun::client
