// Launch limits: this device and its kernels in the form of driver_abi/semantics. Threads, blocks
// and shared memory bound a launch. Registers do not exist here.
#include "emulated/objects/launch_limits.h"

#include <algorithm>

#include "emulated/objects/device_limits.h"
#include "emulated/settings.h"

namespace gpurun::emulated {

static_assert(kBlockThreadsMax == driver_abi::kBlockThreadsMax);
static_assert(kWarpLanes == driver_abi::kWarpThreads);

driver_abi::LaunchShape shape_of(const Extent& grid, const Extent& block,
                                 std::uint32_t dynamic_shared_bytes) {
  return {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, dynamic_shared_bytes};
}

bool extents_allowed(const Extent& grid, const Extent& block) {
  return driver_abi::check_launch(driver_abi::common_limits(), shape_of(grid, block, 0)) ==
         CUDA_SUCCESS;
}

driver_abi::OccupancyDevice occupancy_of_device() {
  const int capability = settings().capability;
  driver_abi::OccupancyDevice device;
  device.capability_major = capability / 10;
  device.multiprocessors = settings().multiprocessors;
  device.threads_per_block = driver_abi::kBlockThreadsMax;
  device.threads_per_multiprocessor = threads_per_multiprocessor(capability);
  device.blocks_per_multiprocessor = blocks_per_multiprocessor(capability);
  device.shared_per_block_optin = shared_bytes_per_block_optin(capability);
  device.shared_per_multiprocessor = device.shared_per_block_optin + kSharedBytesReserved;
  device.shared_reserved_per_block = kSharedBytesReserved;
  return device;
}

driver_abi::OccupancyFunction occupancy_of(const KernelAttributes& attributes,
                                           std::uint32_t dynamic_shared_bytes_max) {
  driver_abi::OccupancyFunction function;
  function.threads_max = static_cast<int>(attributes.max_threads);
  function.static_shared_bytes = static_cast<int>(attributes.static_shared_bytes);
  function.dynamic_shared_bytes_max = static_cast<int>(dynamic_shared_bytes_max);
  return function;
}

int resident_blocks(const KernelAttributes& attributes, std::uint32_t dynamic_shared_bytes_max,
                    std::uint64_t block_threads, std::uint64_t dynamic_shared_bytes) {
  if (block_threads > kBlockThreadsMax) return 0;
  return driver_abi::max_active_blocks(occupancy_of_device(),
                                       occupancy_of(attributes, dynamic_shared_bytes_max),
                                       static_cast<int>(block_threads), dynamic_shared_bytes);
}

}  // namespace gpurun::emulated
