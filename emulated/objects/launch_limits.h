// Launch limits: what a launch, from the host or from a kernel, may ask of this device. The rules
// are in driver_abi/semantics.
#pragma once

#include <cstdint>

#include "driver_abi/semantics/launch_limits.h"
#include "driver_abi/semantics/occupancy.h"
#include "emulated/engine/engine.h"
#include "emulated/module/module.h"

namespace gpurun::emulated {

driver_abi::LaunchShape shape_of(const Extent& grid, const Extent& block,
                                 std::uint32_t dynamic_shared_bytes);
bool extents_allowed(const Extent& grid, const Extent& block);

driver_abi::OccupancyDevice occupancy_of_device();
driver_abi::OccupancyFunction occupancy_of(const KernelAttributes& attributes,
                                           std::uint32_t dynamic_shared_bytes_max);

// The number of blocks of such a kernel that a multiprocessor holds at once. 0: not even one.
int resident_blocks(const KernelAttributes& attributes, std::uint32_t dynamic_shared_bytes_max,
                    std::uint64_t block_threads, std::uint64_t dynamic_shared_bytes);

}  // namespace gpurun::emulated
