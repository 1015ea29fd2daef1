// Launch limits: the checks of a launch's shape, in the driver's order.
#include "driver_abi/semantics/launch_limits.h"

#include <algorithm>
#include <iterator>

namespace gpurun::driver_abi {

LaunchLimits common_limits() noexcept {
  LaunchLimits limits;
  std::copy(std::begin(kGridExtentsMax), std::end(kGridExtentsMax), limits.grid);
  std::copy(std::begin(kBlockExtentsMax), std::end(kBlockExtentsMax), limits.block);
  limits.device_threads = kBlockThreadsMax;
  return limits;
}

CUresult check_launch(const LaunchLimits& limits, const LaunchShape& launch) noexcept {
  std::uint64_t threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const std::uint32_t blocks = launch.grid[axis];
    const std::uint32_t width = launch.block[axis];
    if (blocks == 0 || width == 0) return CUDA_ERROR_INVALID_VALUE;
    if (limits.grid[axis] > 0 && blocks > static_cast<std::uint32_t>(limits.grid[axis])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (limits.block[axis] > 0 && width > static_cast<std::uint32_t>(limits.block[axis])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // Two factors below 2^32 fit. Beyond the limit the third factor does not matter.
    if (threads > 0xffffffffu) return CUDA_ERROR_INVALID_VALUE;
    threads *= width;
  }
  if (limits.device_threads > 0 && threads > static_cast<std::uint64_t>(limits.device_threads)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (limits.kernel_threads > 0 && threads > static_cast<std::uint64_t>(limits.kernel_threads)) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  if (limits.dynamic_shared_known &&
      launch.dynamic_shared_bytes > static_cast<std::uint32_t>(limits.dynamic_shared_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::driver_abi
