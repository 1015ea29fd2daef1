// Capture wall: the check for captures in each call. It costs one load while nothing captures.
#pragma once

#include <atomic>

#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// The number of captures in this process. Only capture.cc writes it.
inline constinit std::atomic<int> g_capture_count{0};

// Whether any stream of the process captures. A thread that knows of another thread's capture has
// synchronised with that thread, so it sees the count.
inline bool capturing_somewhere() noexcept {
  return g_capture_count.load(std::memory_order_relaxed) != 0;
}

// Called before the call of `row` while something captures. Returns 0, or the call's result after
// invalidating the captures concerned (driver_abi/capture_rules.h). Calls that name a stream or an
// event are checked again once these are known (capture.h).
int refuse_while_capturing(const driver_abi::Row& row);

}  // namespace gpurun::client::interpose
