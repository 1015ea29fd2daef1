// Launch limits and clusters: the driver's results at the bounds of a launch.
#include "driver_abi/semantics/launch_limits.h"

#include <gtest/gtest.h>

#include "driver_abi/semantics/clusters.h"

namespace gpurun::driver_abi {
namespace {

CUresult check(const LaunchLimits& limits, std::uint32_t grid_y, std::uint32_t x, std::uint32_t y,
               std::uint32_t z, std::uint32_t shared = 0) {
  return check_launch(limits, {{1, grid_y, 1}, {x, y, z}, shared});
}

TEST(LaunchLimits, EnforcesLimitsCommonToAllDevices) {
  const LaunchLimits limits = common_limits();
  EXPECT_EQ(check(limits, 65'535, 1024, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(check(limits, 65'536, 1024, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(limits, 0, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(limits, 1, 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(limits, 1, 1025, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(limits, 1, 1, 1, 64), CUDA_SUCCESS);
  EXPECT_EQ(check(limits, 1, 1, 1, 65), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(limits, 1, 1024, 2, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(limits, 1, 1024, 1024, 64), CUDA_ERROR_INVALID_VALUE);
  // The kernel's own limits are unknown.
  EXPECT_EQ(check(limits, 1, 1, 1, 1, 0xffffffff), CUDA_SUCCESS);
  EXPECT_EQ(check_launch(limits, {{0x7fffffff, 1, 65'535}, {1, 1, 1}, 0}), CUDA_SUCCESS);
  EXPECT_EQ(check_launch(limits, {{0x80000000, 1, 1}, {1, 1, 1}, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check_launch(limits, {{1, 1, 65'536}, {1, 1, 1}, 0}), CUDA_ERROR_INVALID_VALUE);
}

TEST(LaunchLimits, KernelThreadLimitReturnsOutOfResources) {
  LaunchLimits limits = common_limits();
  limits.kernel_threads = 512;
  limits.dynamic_shared_known = true;
  limits.dynamic_shared_bytes = 100;
  EXPECT_EQ(check(limits, 1, 512, 1, 1, 100), CUDA_SUCCESS);
  EXPECT_EQ(check(limits, 1, 513, 1, 1, 101), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(check(limits, 1, 512, 1, 1, 101), CUDA_ERROR_INVALID_VALUE);
  limits.dynamic_shared_bytes = 0;
  EXPECT_EQ(check(limits, 1, 512, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST(LaunchLimits, UnknownLimitsDoNotOverflow) {
  const std::uint32_t most = 0xffffffff;
  EXPECT_EQ(check_launch({}, {{most, most, most}, {most, most, most}, most}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check_launch({}, {{most, most, most}, {most, 1, 1}, most}), CUDA_SUCCESS);
}

TEST(LaunchLimits, StaticSharedMemoryReducesDynamicLimit) {
  EXPECT_EQ(usual_dynamic_shared(0), 49'152);
  EXPECT_EQ(usual_dynamic_shared(4000), 45'152);
  EXPECT_EQ(usual_dynamic_shared(49'152), 0);
  EXPECT_EQ(usual_dynamic_shared(1u << 30), 0);
}

TEST(ClusterLimits, ClusterMustDivideGrid) {
  EXPECT_EQ(check_cluster({2, 2, 2}, {2, 4, 6}, kPortableClusterBlocksMax), CUDA_SUCCESS);
  EXPECT_EQ(check_cluster({2, 2, 2}, {2, 4, 5}, kPortableClusterBlocksMax),
            CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(check_cluster({1, 1, 1}, {7, 5, 3}, kPortableClusterBlocksMax), CUDA_SUCCESS);
  EXPECT_EQ(check_cluster({0, 1, 1}, {7, 5, 3}, kPortableClusterBlocksMax),
            CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

TEST(ClusterLimits, NonPortableSizeRaisesBlockLimit) {
  EXPECT_EQ(cluster_blocks({8, 1, 1}, kPortableClusterBlocksMax), 8u);
  EXPECT_EQ(cluster_blocks({8, 2, 1}, kPortableClusterBlocksMax), 0u);
  EXPECT_EQ(cluster_blocks({8, 2, 1}, kClusterBlocksMax), 16u);
  EXPECT_EQ(cluster_blocks({16, 2, 1}, kClusterBlocksMax), 0u);
  EXPECT_EQ(cluster_blocks({0x10000, 0x10000, 1}, kClusterBlocksMax), 0u);  // 0 in 32 bits.
}

}  // namespace
}  // namespace gpurun::driver_abi
