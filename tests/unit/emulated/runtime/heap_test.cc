// Device heap: the limit holds, and a wrong free() is detected.
#include "emulated/runtime/device_heap.h"

#include <gtest/gtest.h>

namespace gpurun::emulated {
namespace {

TEST(DeviceHeap, EnforcesLimitAndReusesReleasedMemory) {
  DeviceHeap heap;
  heap.set_limit(1 << 20);
  const std::uint64_t first = heap.allocate(1 << 19);
  ASSERT_NE(first, 0u);
  EXPECT_EQ(first % 16, 0u);
  EXPECT_EQ(heap.allocate(1 << 19), 0u);
  EXPECT_TRUE(heap.release(first));
  EXPECT_EQ(heap.bytes_used(), 0u);
  EXPECT_NE(heap.allocate(1 << 19), 0u);
}

TEST(DeviceHeap, LimitCountsEmptyAllocations) {
  DeviceHeap heap;
  heap.set_limit(160);
  for (int i = 0; i < 10; ++i) EXPECT_NE(heap.allocate(0), 0u);
  EXPECT_EQ(heap.allocate(0), 0u);
}

TEST(DeviceHeap, SizeChecksDoNotOverflow) {
  DeviceHeap heap;
  EXPECT_EQ(heap.allocate(~std::uint64_t{0}), 0u);
  EXPECT_EQ(heap.allocate(~std::uint64_t{0} - 14), 0u);
  EXPECT_EQ(heap.allocate(DeviceHeap::kBytesDefault), 0u);
  heap.set_limit(3);
  EXPECT_EQ(heap.allocate(1), 0u);
}

TEST(DeviceHeap, ReleaseRejectsUnknownAndFreedAddresses) {
  DeviceHeap heap;
  const std::uint64_t address = heap.allocate(10);
  EXPECT_FALSE(heap.release(address + 1));
  EXPECT_TRUE(heap.release(address));
  EXPECT_FALSE(heap.release(address));
  EXPECT_TRUE(heap.release(0));
}

}  // namespace
}  // namespace gpurun::emulated
