// Address tracking: what the client learns of addresses and events from generated calls that
// succeeded.
#pragma once

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

// Refuses a call that needs a mapping of its own at an address in a window (device_windows.h). To
// the program such an address is memory of cuMemAlloc. Returns 0 or the call's result. `arguments`
// as call_generated() takes them.
int refuse_in_window(const driver_abi::Row& row, void* const* arguments) noexcept;

// `arguments` as call_generated() takes them, with the outputs written.
void track_addresses(const EntryContext& here, const driver_abi::Row& row,
                     void* const* arguments) noexcept;

}  // namespace gpurun::client::interpose
