// What a driver tells of the kernels of a module or library. Drivers older than CUDA 12.4 do not
// list kernels or tell parameters: then nothing is listed, and layouts are unknown.
#pragma once

#include <optional>

#include "protocol/module_calls.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/module_state.h"

namespace gpurun::server {

// One kernel of either kind, by the driver's value.
struct DriverKernel {
  HandleKind kind;  // kKernel or kFunction.
  void* value;
};

// Parameters and attributes, those of a CUkernel on `device`. The driver may load its code for it.
void describe_kernel(const CudaDriver& driver, const DriverKernel& kernel, CUdevice device,
                     protocol::KernelDescription* description);
// Nothing where the driver does not tell.
std::optional<KernelLayout> layout_of(const CudaDriver& driver, const DriverKernel& kernel);

// All kernels that the driver lists for a module or library, as far as `bytes_max` of a packed
// reply goes; the first protocol::kDescribedKernelsMax with descriptions. Sets `complete`.
void list_kernels(const CudaDriver& driver, HandleKind kind, void* owner, CUdevice device,
                  std::size_t bytes_max, protocol::ImageOutcome* outcome);

}  // namespace gpurun::server
