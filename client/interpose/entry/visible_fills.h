// Visible fills: synchronous fills of two dimensions, of memory that the program sees. CUDA
// waits for them (manual, "API synchronization behavior").
#pragma once

#include "client/interpose/call/forward.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// Returns whether the call is such a fill. It was then made by its asynchronous form, because a
// driver call that waits would hold up other calls in the worker. `*result` is the call's result.
bool fill_visible_plane(const EntryContext& here, const driver_abi::Row& row,
                        void* const* arguments, int* result);

}  // namespace gpurun::client::interpose
