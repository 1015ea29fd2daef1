// Memory semantics: planes, arrays and their levels, and the attributes of pools.
#include <gtest/gtest.h>

#include "driver_abi/semantics/arrays.h"
#include "driver_abi/semantics/planes.h"
#include "driver_abi/semantics/pool_attributes.h"
#include "driver_abi/semantics/pool_places.h"

namespace gpurun::driver_abi {
namespace {

constexpr std::uint64_t kMost = ~std::uint64_t{0};

TEST(PitchedMemory, PitchIsMultipleOf512Bytes) {
  std::size_t pitch = 7;
  EXPECT_EQ(choose_pitch(1, 1, 4, &pitch), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 512u);
  EXPECT_EQ(choose_pitch(513, 9, 16, &pitch), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 1024u);
  EXPECT_EQ(choose_pitch(0, 1, 4, &pitch), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(choose_pitch(1, 0, 4, &pitch), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(choose_pitch(1, 1, 2, &pitch), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(choose_pitch(kMost, 1, 4, &pitch), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(choose_pitch(512, kMost / 256, 4, &pitch), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pitch, 1024u);
}

TEST(PitchedMemory, SpanEndsWithLastLine) {
  EXPECT_EQ(span_of({0x1000, 512, 4, 10, 3}), 2u * 512 + 40);
  EXPECT_EQ(span_of({0x1000, 0, 4, 10, 1}), 40u);  // One line needs no pitch.
  EXPECT_EQ(span_of({0x1000, 39, 4, 10, 2}), std::nullopt);
  EXPECT_EQ(span_of({0x1000, 42, 4, 10, 2}), std::nullopt);
  EXPECT_EQ(span_of({0x1001, 512, 4, 10, 1}), std::nullopt);
  EXPECT_EQ(span_of({0, 512, 1, 10, 1}), std::nullopt);
}

TEST(PitchedMemory, SpanDoesNotOverflow) {
  EXPECT_EQ(span_of({0x1000, 0, 4, kMost / 2, 1}), std::nullopt);
  EXPECT_EQ(span_of({0x1000, kMost - 3, 4, 1, 3}), std::nullopt);
  EXPECT_EQ(span_of({0x1000, kMost - 3, 4, 1, 2}), std::nullopt);
  EXPECT_EQ(span_of({0x1000, kMost, 1, kMost, 1}), kMost);
}

TEST(PitchedMemory, MemsetNodeDescribesFill) {
  CUDA_MEMSET_NODE_PARAMS node{};
  node.dst = 0x1000, node.pitch = 512, node.elementSize = 2, node.width = 5, node.height = 4;
  const auto fill = fill_of(node);
  ASSERT_TRUE(fill);
  EXPECT_EQ(span_of(*fill), 3u * 512 + 10);
  node.elementSize = 8;
  EXPECT_FALSE(fill_of(node));
  node.elementSize = 4, node.width = 0;
  EXPECT_FALSE(fill_of(node));
  node.width = 5, node.height = 0;
  EXPECT_FALSE(fill_of(node));
}

CUDA_ARRAY3D_DESCRIPTOR array(std::size_t width, std::size_t height, std::size_t depth,
                              unsigned flags = 0) {
  return {width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags};
}

TEST(CudaArrays, LongestExtentSetsLevelCount) {
  EXPECT_EQ(mipmap_levels(array(64, 16, 0), 100), 7u);
  EXPECT_EQ(mipmap_levels(array(65, 16, 0), 100), 7u);
  EXPECT_EQ(mipmap_levels(array(1, 1, 1), ~0u), 1u);
  EXPECT_EQ(mipmap_levels(array(64, 16, 0), 0), 1u);
  EXPECT_EQ(mipmap_levels(array(64, 16, 0), 3), 3u);
  EXPECT_EQ(mipmap_levels(array(4, 4, 256), 100), 9u);
  EXPECT_EQ(mipmap_levels(array(4, 4, 256, CUDA_ARRAY3D_LAYERED), 100), 3u);
}

TEST(CudaArrays, LevelsKeepLayers) {
  const CUDA_ARRAY3D_DESCRIPTOR volume = level_of(array(64, 3, 8), 2);
  EXPECT_EQ(volume.Width, 16u);
  EXPECT_EQ(volume.Height, 1u);
  EXPECT_EQ(volume.Depth, 2u);
  const CUDA_ARRAY3D_DESCRIPTOR layered = level_of(array(64, 0, 8, CUDA_ARRAY3D_LAYERED), 2);
  EXPECT_EQ(layered.Height, 0u);
  EXPECT_EQ(layered.Depth, 8u);
  EXPECT_EQ(level_of(array(64, 64, 6, CUDA_ARRAY3D_CUBEMAP), 6).Depth, 6u);
}

TEST(CudaArrays, BoxMustFitAndStartAtElement) {
  const ArrayExtent all{4, 40, 5, 2};
  EXPECT_TRUE(is_part_of(all, {0, 0, 0, 40, 5, 2}));
  EXPECT_TRUE(is_part_of(all, {4, 4, 1, 35, 1, 1}));
  EXPECT_TRUE(is_part_of(all, {40, 5, 2, 0, 0, 0}));
  EXPECT_FALSE(is_part_of(all, {2, 0, 0, 4, 1, 1}));
  EXPECT_FALSE(is_part_of(all, {4, 0, 0, 37, 1, 1}));
  EXPECT_FALSE(is_part_of(all, {0, 5, 0, 4, 1, 1}));
  EXPECT_FALSE(is_part_of(all, {0, 0, 1, 4, 1, 2}));
  EXPECT_FALSE(is_part_of(all, {4, 0, 0, kMost, 1, 1}));
  EXPECT_FALSE(is_part_of(all, {kMost - 3, 0, 0, 8, 1, 1}));
}

TEST(CudaArrays, ChannelBytesMatchFormat) {
  EXPECT_EQ(channel_bytes(CU_AD_FORMAT_SIGNED_INT8), 1u);
  EXPECT_EQ(channel_bytes(CU_AD_FORMAT_HALF), 2u);
  EXPECT_EQ(channel_bytes(CU_AD_FORMAT_UNSIGNED_INT32), 4u);
  EXPECT_EQ(channel_bytes(CU_AD_FORMAT_BC1_UNORM), 0u);
}

TEST(PoolPlaces, OnlyDeviceMemoryIsServed) {
  constexpr auto kPinned = CU_MEM_ALLOCATION_TYPE_PINNED;
  constexpr auto kManaged = CU_MEM_ALLOCATION_TYPE_MANAGED;
  EXPECT_EQ(check_pool_place(CU_MEM_LOCATION_TYPE_DEVICE, kPinned), CUDA_SUCCESS);
  for (const auto host : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA}) {
    EXPECT_EQ(check_pool_place(host, kPinned), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(check_pool_place(host, kManaged), CUDA_ERROR_NOT_SUPPORTED);
  }
  EXPECT_EQ(check_pool_place(CU_MEM_LOCATION_TYPE_DEVICE, kManaged), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(check_pool_place(CU_MEM_LOCATION_TYPE_NONE, kManaged), CUDA_ERROR_NOT_SUPPORTED);
  // The manual's "in all other cases".
  EXPECT_EQ(check_pool_place(CU_MEM_LOCATION_TYPE_NONE, kPinned), CUDA_ERROR_INVALID_VALUE);
  for (const auto kind : {kPinned, kManaged}) {
    EXPECT_EQ(check_pool_place(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, kind),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(check_pool_place(~0u, kind), CUDA_ERROR_INVALID_VALUE);
  }
  for (const auto kind : {0u, 77u}) {
    EXPECT_EQ(check_pool_place(CU_MEM_LOCATION_TYPE_DEVICE, kind), CUDA_ERROR_INVALID_VALUE);
  }
}

TEST(PoolAttributes, ValuesHaveFourOrEightBytes) {
  EXPECT_EQ(pool_attribute_bytes(0), 0u);
  EXPECT_EQ(pool_attribute_bytes(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES), 4u);
  EXPECT_EQ(pool_attribute_bytes(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES), 4u);
  EXPECT_EQ(pool_attribute_bytes(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 8u);
  EXPECT_EQ(pool_attribute_bytes(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 8u);
  EXPECT_EQ(pool_attribute_bytes(9), 0u);
}

TEST(PoolAttributes, HighWaterMarksAcceptOnlyZero) {
  EXPECT_TRUE(is_pool_setting(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, kMost));
  EXPECT_TRUE(is_pool_setting(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1));
  EXPECT_TRUE(is_pool_setting(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0));
  EXPECT_FALSE(is_pool_setting(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 1));
  EXPECT_FALSE(is_pool_setting(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 1));
  EXPECT_FALSE(is_pool_setting(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 0));
  EXPECT_FALSE(is_pool_setting(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 0));
  EXPECT_FALSE(is_pool_setting(99, 0));
}

}  // namespace
}  // namespace gpurun::driver_abi
