// NVML view: the table that the client marker returns.
#pragma once

#include "driver_abi/client_marker.h"

namespace gpurun::client::interpose {

extern const driver_abi::ClientView kClientView;

}  // namespace gpurun::client::interpose
