// The table behind the client marker.
#pragma once

#include "driver_abi/client_marker.h"

namespace gpurun::client::interpose {

extern const driver_abi::ClientView kClientView;

}  // namespace gpurun::client::interpose
