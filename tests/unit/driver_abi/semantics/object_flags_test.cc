// Object flags: the flags and priorities that calls take, and those that they refuse.
#include "driver_abi/semantics/object_flags.h"

#include <gtest/gtest.h>

#include <climits>

namespace gpurun::driver_abi {
namespace {

TEST(ObjectFlags, InterprocessEventsRequireDisabledTiming) {
  EXPECT_TRUE(is_event_flags(0));
  EXPECT_TRUE(is_event_flags(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
  EXPECT_TRUE(is_event_flags(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  EXPECT_FALSE(is_event_flags(CU_EVENT_INTERPROCESS));
  EXPECT_FALSE(is_event_flags(8));
}

TEST(ObjectFlags, ExternalRecordsAndWaitsRequireCapture) {
  EXPECT_TRUE(is_event_record_flags(0, false));
  EXPECT_FALSE(is_event_record_flags(CU_EVENT_RECORD_EXTERNAL, false));
  EXPECT_TRUE(is_event_record_flags(CU_EVENT_RECORD_EXTERNAL, true));
  EXPECT_FALSE(is_event_record_flags(2, true));
  EXPECT_TRUE(is_event_wait_flags(0, false));
  EXPECT_FALSE(is_event_wait_flags(CU_EVENT_WAIT_EXTERNAL, false));
  EXPECT_TRUE(is_event_wait_flags(CU_EVENT_WAIT_EXTERNAL, true));
  EXPECT_FALSE(is_event_wait_flags(CU_EVENT_WAIT_EXTERNAL | 2, true));
}

TEST(ObjectFlags, RejectsUnknownStreamAndContextFlags) {
  EXPECT_TRUE(is_stream_flags(CU_STREAM_NON_BLOCKING));
  EXPECT_FALSE(is_stream_flags(2));
  EXPECT_TRUE(is_context_flags(0xff));
  EXPECT_FALSE(is_context_flags(0x100));
}

TEST(ObjectFlags, ValidatesHostMemoryFlags) {
  EXPECT_TRUE(is_host_alloc_flags(7));
  EXPECT_FALSE(is_host_alloc_flags(8));
  EXPECT_EQ(
      check_host_register_flags(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP, false),
      CUDA_SUCCESS);
  EXPECT_EQ(check_host_register_flags(CU_MEMHOSTREGISTER_READ_ONLY, true), CUDA_SUCCESS);
  EXPECT_EQ(check_host_register_flags(CU_MEMHOSTREGISTER_READ_ONLY, false),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(check_host_register_flags(CU_MEMHOSTREGISTER_IOMEMORY, true), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(check_host_register_flags(16 | CU_MEMHOSTREGISTER_IOMEMORY, true),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(StreamPriorities, PriorityIsClampedToRange) {
  EXPECT_EQ(clamp_priority(1), 0);
  EXPECT_EQ(clamp_priority(0), 0);
  EXPECT_EQ(clamp_priority(-3), -3);
  EXPECT_EQ(clamp_priority(-6), -5);
  EXPECT_EQ(clamp_priority(INT_MIN), -5);
}

}  // namespace
}  // namespace gpurun::driver_abi
