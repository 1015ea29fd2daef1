// Takes the snapshot of all devices that a client answers its device queries from.
#pragma once

#include "base/bytes.h"
#include "base/result.h"
#include "driver_abi/emulated_view.h"
#include "server/driver/cuda_driver.h"

namespace gpurun::server {

// A wire::Snapshot message. The driver must be initialized; it is asked some hundred questions per
// device, so the worker keeps the result. kCuda: the driver cannot even count its devices.
Result<Bytes> take_snapshot(const CudaDriver& driver);

// Our emulated device's own answers; nullptr from any other driver.
const driver_abi::EmulatedView* emulated_view(const CudaDriver& driver);

// Whether it is our emulated device's, which does not change. The driver must be initialized.
bool is_emulated(const CudaDriver& driver);

}  // namespace gpurun::server
