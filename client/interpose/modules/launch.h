// Launch: a launch from the program's arguments to the record: limits, parameter block, attributes.
// This part knows no session. See launch_entries.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "client/interpose/modules/kernel_table.h"
#include "driver_abi/cuda_abi.h"
#include "driver_abi/semantics/launch_limits.h"
#include "protocol/log/record.h"

namespace gpurun::client {
struct Device;
}

namespace gpurun::client::interpose::modules {

struct Function;

using driver_abi::LaunchLimits;

// `device` may be nullptr: unknown. Defined in launch_entries.cc.
LaunchLimits limits_of(const Device* device, const Function& function);

driver_abi::LaunchShape shape_of(const protocol::LaunchPayload& launch) noexcept;
// Returns 0, or the result of cuLaunchKernel (driver_abi/semantics/launch_limits.h).
int check_launch(const LaunchLimits& limits, const protocol::LaunchPayload& launch) noexcept;

// Refuses clusters of more than one block, which the emulated device does not support. Returns 0,
// or NOT_SUPPORTED with a log line, so that the launch itself returns the error. `required` is the
// cluster that the kernel was compiled for, 0 for none. The driver reports other errors of
// clusters.
int check_cluster(const Kernel& kernel, const std::array<int, 3>& required,
                  const protocol::LaunchPayload& launch,
                  std::span<const protocol::LaunchAttribute> attributes) noexcept;

// Packs a launch's parameters from `parameters` (one pointer each) or `extra`.
struct PackedParameters {
  // Returns INVALID_VALUE if both or none are given although the kernel takes some. Also if `extra`
  // is malformed, shorter than the kernel's parameters or over limits::kKernelParameterBytesMax.
  // Returns NOT_SUPPORTED for `parameters` of a kernel without a known layout.
  int pack(const Kernel& kernel, void* const* parameters, void* const* extra);

  ByteView block;                 // Valid until this object ends. May lie in the program's memory.
  std::uint64_t layout_hash = 0;  // 0: the program packed the block.

 private:
  // The blocks of most kernels fit here. Larger blocks are allocated.
  std::array<std::byte, 1024> small_;
  Bytes large_;
};

// Converts attributes to their wire form. Returns INVALID_VALUE for more than
// protocol::kLaunchAttributesMax, NOT_SUPPORTED for one that cannot be carried. Attributes to be
// ignored are left out. `*written` gets the number of the converted ones.
int pack_attributes(const CUlaunchAttribute* attributes, unsigned count,
                    std::span<protocol::LaunchAttribute> into, unsigned* written);

}  // namespace gpurun::client::interpose::modules
