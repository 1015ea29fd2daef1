// GeneratedCall: one call of a generated row, from the program's arguments to its outputs: handles
// are checked and minted, devices get the worker's numbers, and the row says the rest.
#pragma once

#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// `arguments` as call_generated() takes them. A CUresult.
int run_generated(const driver_abi::Row& row, void* const* arguments);

}  // namespace gpurun::client::interpose
