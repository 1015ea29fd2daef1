// Occupancy facts: what the client knows of a device and a kernel, in the form of
// driver_abi/semantics/occupancy.h.
#pragma once

#include "client/devices/device_snapshot.h"
#include "driver_abi/semantics/occupancy.h"

namespace gpurun::client::interpose::modules {

struct Function;

driver_abi::OccupancyDevice occupancy_of(const Device& device);
driver_abi::OccupancyFunction occupancy_of(const Function& function);

}  // namespace gpurun::client::interpose::modules
