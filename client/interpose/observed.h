// What the client learns from generated calls that succeeded: which addresses are the device's.
#pragma once

#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

// 0, or what a call answers that has nothing to look for in memory of a window (device_windows.h),
// where to the program there is memory of cuMemAlloc and no mapping of its own. `arguments` as
// call_generated() takes them.
int refuse_in_window(const driver_abi::Row& row, void* const* arguments) noexcept;

// `arguments` as call_generated() takes them, outputs written.
void observe(const Here& here, const driver_abi::Row& row, void* const* arguments) noexcept;

}  // namespace gpurun::client::interpose
