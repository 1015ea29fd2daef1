// Capture wall: the check of each call while something captures.
#pragma once

#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// Called before the call of `row` while something captures. Returns 0, or the call's result after
// invalidating the captures concerned (driver_abi/semantics/capture_rules.h). Calls that name a
// stream or an event are checked again once these are known (capture.h).
int refuse_while_capturing(const driver_abi::Row& row);

}  // namespace gpurun::client::interpose
