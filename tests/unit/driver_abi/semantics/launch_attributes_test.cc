// Launch attributes: every id of cuda.h has a rule, and only values without handles cross
// processes.
#include "driver_abi/semantics/launch_attributes.h"

#include <gtest/gtest.h>

#include <set>

namespace gpurun::driver_abi {
namespace {

using Use = LaunchAttributeUse;
using Stream = StreamAttributeUse;

template <typename Fits>
std::set<unsigned> ids(Fits fits) {
  std::set<unsigned> found;
  for (unsigned id = 0; id < 100; ++id) {
    if (fits(launch_attribute(id))) found.insert(id);
  }
  return found;
}

std::set<unsigned> used_as(Use use) {
  return ids([use](const LaunchAttributeRule& rule) { return rule.use == use; });
}

TEST(LaunchAttributes, EachIdHasOneUse) {
  EXPECT_EQ(used_as(Use::kIgnored), (std::set<unsigned>{0}));
  EXPECT_EQ(used_as(Use::kRequest), (std::set<unsigned>{2, 4}));
  EXPECT_EQ(used_as(Use::kEvent), (std::set<unsigned>{7, 12}));
  EXPECT_EQ(used_as(Use::kDeviceHandle), (std::set<unsigned>{13}));
  EXPECT_EQ(used_as(Use::kHint), (std::set<unsigned>{1, 3, 5, 6, 8, 9, 10, 11, 14, 16, 17, 18}));
  EXPECT_EQ(launch_attribute(15).use, Use::kUnknown);
  EXPECT_EQ(launch_attribute(CU_LAUNCH_ATTRIBUTE_MAX).use, Use::kUnknown);
  EXPECT_EQ(launch_attribute(0xffffffff).use, Use::kUnknown);
}

TEST(LaunchAttributes, FiveIdsApplyToStreams) {
  const auto of = [](Stream stream) {
    return ids([stream](const LaunchAttributeRule& rule) { return rule.stream == stream; });
  };
  EXPECT_EQ(of(Stream::kEveryDriver), (std::set<unsigned>{1, 3, 8}));
  EXPECT_EQ(of(Stream::kNewDriver), (std::set<unsigned>{9, 10}));
}

TEST(LaunchAttributes, OnlyIdsWithoutHandlesCrossProcesses) {
  EXPECT_EQ(ids([](const LaunchAttributeRule& rule) { return rule.crosses; }),
            (std::set<unsigned>{1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 14, 16, 17, 18}));
}

// A worker passes what these let through to its driver as it came.
TEST(LaunchAttributes, NodesAndStreamsTakeNoValueWithHandle) {
  for (unsigned id = 0; id < 100; ++id) {
    const bool crosses = launch_attribute(id).crosses;
    EXPECT_EQ(check_node_attribute(id) == CUDA_SUCCESS, crosses) << id;
    EXPECT_TRUE(crosses || check_stream_attribute(id) != CUDA_SUCCESS) << id;
  }
  EXPECT_EQ(check_node_attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check_node_attribute(CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(check_stream_attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY), CUDA_SUCCESS);
  EXPECT_EQ(check_stream_attribute(CU_LAUNCH_ATTRIBUTE_COOPERATIVE), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpurun::driver_abi
