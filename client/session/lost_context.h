// LostContext: where the session reports the first failure that ends a context.
#pragma once

#include <atomic>

#include "client/log/handles.h"

namespace gpurun::client {

// Called with each failure that ends `context` (0: every one), before the program reads it. It runs
// on the thread that reads the log, which may be any waiting thread. It must not make calls.
// nullptr: no callback. `result` is the CUresult.
using ContextLost = void (*)(Handle context, int result);
inline std::atomic<ContextLost> on_context_lost{nullptr};

inline void report_lost_context(Handle context, int result) noexcept {
  const ContextLost report = on_context_lost.load(std::memory_order_acquire);
  if (report != nullptr) report(context, result);
}

}  // namespace gpurun::client
