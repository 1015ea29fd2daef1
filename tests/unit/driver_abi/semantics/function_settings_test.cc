// Function settings: the range of each attribute that a program may set, with and without knowledge
// of the device.
#include "driver_abi/semantics/function_settings.h"

#include <gtest/gtest.h>

namespace gpurun::driver_abi {
namespace {

bool valid(CUfunction_attribute id, int value, const SettingBounds& bounds = {}) {
  const CUresult result = check_function_setting(bounds, id, value);
  EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE);
  return result == CUDA_SUCCESS;
}

TEST(FunctionSettings, LimitsDynamicSharedMemoryOfKnownDevice) {
  constexpr auto kId = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  EXPECT_FALSE(valid(kId, -1));
  EXPECT_TRUE(valid(kId, 1 << 30));
  SettingBounds bounds;
  bounds.dynamic_shared_known = true;
  bounds.dynamic_shared_bytes = 100;
  EXPECT_TRUE(valid(kId, 100, bounds));
  EXPECT_FALSE(valid(kId, 101, bounds));
  bounds.dynamic_shared_bytes = -1;  // More static memory than a block may have.
  EXPECT_FALSE(valid(kId, 0, bounds));
}

TEST(FunctionSettings, EnforcesRangesOfCudaManual) {
  EXPECT_TRUE(valid(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1));
  EXPECT_TRUE(valid(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100));
  EXPECT_FALSE(valid(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -2));
  EXPECT_FALSE(valid(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101));
  EXPECT_TRUE(valid(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  EXPECT_FALSE(valid(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 2));
  EXPECT_FALSE(valid(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, -1));
}

TEST(FunctionSettings, LimitsClustersOfKnownDevice) {
  constexpr auto kHeight = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT;
  constexpr auto kPolicy = CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
  EXPECT_TRUE(valid(kHeight, 17));
  EXPECT_TRUE(valid(kPolicy, 17));
  EXPECT_FALSE(valid(kHeight, -1));
  EXPECT_FALSE(valid(kPolicy, -1));
  SettingBounds bounds;
  bounds.cluster_extent = 16;
  bounds.scheduling_policy = 2;
  EXPECT_TRUE(valid(kHeight, 16, bounds));
  EXPECT_FALSE(valid(kHeight, 17, bounds));
  EXPECT_TRUE(valid(kPolicy, 2, bounds));
  EXPECT_FALSE(valid(kPolicy, 3, bounds));
  bounds.cluster_fixed[1] = true;
  EXPECT_FALSE(valid(kHeight, 1, bounds));
  EXPECT_TRUE(valid(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1, bounds));
}

TEST(FunctionSettings, RefusesReadOnlyAttributes) {
  for (const auto id : {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_NUM_REGS,
                        CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, CU_FUNC_ATTRIBUTE_MAX}) {
    EXPECT_FALSE(valid(id, 1)) << id;
  }
}

TEST(FunctionSettings, ValidatesCacheAndSharedMemoryConfigs) {
  EXPECT_TRUE(is_cache_config(CU_FUNC_CACHE_PREFER_EQUAL));
  EXPECT_FALSE(is_cache_config(static_cast<CUfunc_cache>(CU_FUNC_CACHE_PREFER_EQUAL + 1)));
  EXPECT_FALSE(is_cache_config(static_cast<CUfunc_cache>(-1)));
  EXPECT_TRUE(is_shared_config(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
  EXPECT_FALSE(is_shared_config(static_cast<CUsharedconfig>(3)));
}

}  // namespace
}  // namespace gpurun::driver_abi
