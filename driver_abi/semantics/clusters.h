// Clusters: which cluster of blocks a launch may have.
//
// Source: CUDA Programming Guide, "Thread Block Clusters": eight blocks are portable, sixteen need
// CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, and each extent divides the grid's. CUDA
// Driver API manual, cuLaunchKernelEx and CUDA_ERROR_INVALID_CLUSTER_SIZE.
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

inline constexpr std::uint32_t kPortableClusterBlocksMax = 8;
inline constexpr std::uint32_t kClusterBlocksMax = 16;

// The number of blocks of a cluster. 0: an extent is 0, or there are more than `blocks_max`.
constexpr std::uint32_t cluster_blocks(const std::uint32_t (&cluster)[3],
                                       std::uint32_t blocks_max) noexcept {
  std::uint64_t blocks = 1;
  for (const std::uint32_t extent : cluster) {
    if (extent == 0 || extent > blocks_max) return 0;
    blocks *= extent;
  }
  return blocks > blocks_max ? 0 : static_cast<std::uint32_t>(blocks);
}

// INVALID_CLUSTER_SIZE: no cluster of at most `blocks_max` blocks, or the grid is no multiple of
// it.
constexpr CUresult check_cluster(const std::uint32_t (&cluster)[3], const std::uint32_t (&grid)[3],
                                 std::uint32_t blocks_max) noexcept {
  if (cluster_blocks(cluster, blocks_max) == 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  for (int axis = 0; axis < 3; ++axis) {
    if (grid[axis] % cluster[axis] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::driver_abi
