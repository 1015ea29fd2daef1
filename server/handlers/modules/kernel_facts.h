// Kernel facts: the driver's description of the kernels of a module or library. When a call of the
// driver fails, the list is incomplete or a layout is unknown.
#pragma once

#include <optional>
#include <vector>

#include "protocol/calls/module_calls.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/modules/module_state.h"

namespace gpurun::server {

// One kernel of either kind, with the driver's value.
struct DriverKernel {
  HandleKind kind;  // kKernel or kFunction.
  void* value;
};

// The parameters and attributes, for a CUkernel those on `device`. The driver may load its code for
// this.
void describe_kernel(const CudaDriver& driver, const DriverKernel& kernel, CUdevice device,
                     protocol::KernelDescription* description);
// The parameters alone. False if the driver does not report all of them. Needs a current context.
bool parameters_of(const CudaDriver& driver, const DriverKernel& kernel,
                   std::vector<protocol::KernelParameter>* parameters);
// Nothing if the driver does not report the layout.
std::optional<KernelLayout> layout_of(const CudaDriver& driver, const DriverKernel& kernel);

// Lists the driver's kernels of a module or library, as far as `bytes_max` of a packed reply
// reaches. The first protocol::kDescribedKernelsMax have descriptions. Sets `complete`.
void list_kernels(const CudaDriver& driver, HandleKind kind, void* owner, CUdevice device,
                  std::size_t bytes_max, protocol::ImageOutcome* outcome);

}  // namespace gpurun::server
