// What every call asks of captures: one load while nothing captures.
#pragma once

#include <atomic>

#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// How many captures there are in this process. Written by capture.cc.
inline constinit std::atomic<int> g_capture_count{0};

// Whether any stream of the process captures. A thread that knows of another's capture has
// synchronised with that thread, and so sees it.
inline bool capturing_somewhere() noexcept {
  return g_capture_count.load(std::memory_order_relaxed) != 0;
}

// Before the call of `row`, while something captures: 0, or what it returns instead, and the
// captures in question are invalidated (driver_abi/capture_rules.h). Calls that name a stream or an
// event are looked at again where these are known (capture.h).
int refuse_while_capturing(const driver_abi::Row& row);

}  // namespace gpurun::client::interpose
