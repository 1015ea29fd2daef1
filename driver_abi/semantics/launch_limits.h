// Launch limits: how large a launch may be, and the result of one that is larger. The client checks
// the program's launches by these rules, and the emulated device its own, from host and kernels.
//
// Sources: CUDA Programming Guide, "Technical Specifications per Compute Capability" (extents,
// threads, warps, shared memory) and "Function Parameters". CUDA Driver API manual,
// "Execution Control" (results of cuLaunchKernel). docs/cuda-gotchas.md has the two rules that the
// manuals leave open: "The code for a launch of too many threads" and "Dynamic shared memory over
// 48 KiB".
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

// Every device since compute capability 3.0 has these.
inline constexpr int kWarpThreads = 32;
inline constexpr int kBlockThreadsMax = 1024;
inline constexpr int kGridExtentsMax[3] = {0x7fffffff, 65'535, 65'535};
inline constexpr int kBlockExtentsMax[3] = {1024, 1024, 64};
// Static and dynamic shared memory of a block together, unless the program asks for more.
inline constexpr int kSharedBytesUsual = 48 << 10;
// A kernel's parameters together.
inline constexpr std::size_t kKernelParameterBytesMax = 32'764;

// The limit of a kernel's dynamic shared memory before the program sets
// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
constexpr int usual_dynamic_shared(std::uint64_t static_bytes) noexcept {
  return static_bytes >= kSharedBytesUsual ? 0 : kSharedBytesUsual - static_cast<int>(static_bytes);
}

struct LaunchShape {
  std::uint32_t grid[3] = {1, 1, 1};
  std::uint32_t block[3] = {1, 1, 1};
  std::uint32_t dynamic_shared_bytes = 0;
};

// The upper bounds of the device and the kernel. 0: unknown, and not checked.
struct LaunchLimits {
  int grid[3] = {};
  int block[3] = {};
  int device_threads = 0;  // In a block, by the device.
  int kernel_threads = 0;  // In a block, by this kernel: its registers or its own bound.
  int dynamic_shared_bytes = 0;
  bool dynamic_shared_known = false;
};

// The limits that every device has. Those of a kernel are unknown.
LaunchLimits common_limits() noexcept;

// INVALID_VALUE: a dimension is 0 or beyond the device, or there is too much dynamic shared memory.
// LAUNCH_OUT_OF_RESOURCES: more threads than this kernel can have.
CUresult check_launch(const LaunchLimits& limits, const LaunchShape& launch) noexcept;

}  // namespace gpurun::driver_abi
