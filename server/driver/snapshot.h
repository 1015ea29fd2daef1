// Snapshot: the facts of all devices from which a client answers its device queries.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/pci_devices.h"
#include "base/result.h"
#include "driver_abi/emulated_view.h"
#include "server/driver/cuda_driver.h"

namespace gpurun::server {

// A wire::Snapshot message. The driver must be initialized. It is asked some hundred questions per
// device, so the worker keeps the result. `files`: of the machine, which shows how far its GPUs are
// from each other. kCuda: the driver cannot even count its devices.
Result<Bytes> take_snapshot(const CudaDriver& driver, const SystemFiles& files = SystemFiles());

// The PCI devices of the driver's GPUs, as far as the kernel shows them. Empty for emulated
// devices, which have invented addresses.
std::vector<PciDevice> gpu_places(const CudaDriver& driver);

// The view of our emulated device. nullptr for any other driver.
const driver_abi::EmulatedView* emulated_view(const CudaDriver& driver);

// Whether the driver is our emulated device, which does not change. The driver must be initialized.
bool is_emulated(const CudaDriver& driver);

}  // namespace gpurun::server
