// What the client learns from generated calls that succeeded: which addresses are the device's.
#pragma once

#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

// `arguments` as call_generated() takes them, outputs written.
void observe(const Here& here, const driver_abi::Row& row, void* const* arguments) noexcept;

}  // namespace gpurun::client::interpose
