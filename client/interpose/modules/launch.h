// A launch, from the program's arguments to the record: limits, parameter block, attributes. The
// part that knows no session; see launch_entries.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "client/interpose/modules/kernel_table.h"
#include "driver_abi/cuda_abi.h"
#include "protocol/record.h"

namespace gpurun::client {
struct Device;
}

namespace gpurun::client::interpose::modules {

struct Function;

// What the device and the kernel allow at most; 0: unknown, and not checked.
struct LaunchLimits {
  int grid[3] = {};
  int block[3] = {};
  int device_threads = 0;  // In a block.
  int kernel_threads = 0;  // Likewise, of this kernel: its registers or its own bound.
  int dynamic_shared_bytes = 0;
  bool dynamic_shared_known = false;
};

// `device` may be nullptr: unknown. (In launch_entries.cc.)
LaunchLimits limits_of(const Device* device, const Function& function);

// 0, or what cuLaunchKernel returns (manual, "Execution Control"): INVALID_VALUE for a dimension
// of 0 or beyond the device, or too much dynamic shared memory; LAUNCH_OUT_OF_RESOURCES for more
// threads than this kernel can have.
int check_launch(const LaunchLimits& limits, const protocol::LaunchPayload& launch) noexcept;

// The emulated device refuses clusters of more than one block (NOT_SUPPORTED): 0, or that with a
// log line, so that the program learns of it from the launch itself. `required` is the cluster that
// the kernel was made for, 0 for none. What is wrong with a cluster otherwise, the driver says.
int check_cluster(const Kernel& kernel, const std::array<int, 3>& required,
                  const protocol::LaunchPayload& launch,
                  std::span<const protocol::LaunchAttribute> attributes) noexcept;

// Where a launch's parameters come from: `parameters` (one pointer each) or `extra`.
struct PackedParameters {
  // INVALID_VALUE: both or none are given although the kernel takes some, or `extra` is malformed,
  // shorter than what the kernel takes or over limits::kKernelParameterBytesMax. NOT_SUPPORTED:
  // `parameters` of a kernel whose layout nobody could tell.
  int pack(const Kernel& kernel, void* const* parameters, void* const* extra);

  ByteView block;                 // Until this object ends, or in the program's memory.
  std::uint64_t layout_hash = 0;  // 0: packed by the program.

 private:
  // Most kernels take less; larger blocks are allocated.
  std::array<std::byte, 1024> small_;
  Bytes large_;
};

// Attributes as they travel. INVALID_VALUE for more than protocol::kLaunchAttributesMax,
// NOT_SUPPORTED for one that cannot be carried. What is to be ignored is left out. `*count`: how
// many were written.
int pack_attributes(const CUlaunchAttribute* attributes, unsigned count,
                    std::span<protocol::LaunchAttribute> into, unsigned* written);

}  // namespace gpurun::client::interpose::modules
