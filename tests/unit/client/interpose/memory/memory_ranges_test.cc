// MemoryRanges: an address has the attributes that were set last, by any thread. A range that one
// thread has looked up before is no longer found after another thread has removed it. Its
// replacement is found.
#include "client/interpose/memory/memory_ranges.h"

#include <gtest/gtest.h>

#include <thread>

namespace gpurun::client::interpose {
namespace {

constexpr std::uint64_t kBase = 0x4000'0000'0000;
constexpr std::uint64_t kBytes = 4096;

MemoryRange range_at(std::uint64_t base, Handle context = 1) {
  MemoryRange range;
  range.base = base;
  range.bytes = kBytes;
  range.kind = MemoryKind::kDevice;
  range.context = context;
  return range;
}

class MemoryRangesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const Handle context : {1, 2}) take_ranges_of_context(context);
  }
};

TEST_F(MemoryRangesTest, RemovedRangeIsNotFoundAfterEarlierLookup) {
  ASSERT_TRUE(add_range(range_at(kBase)));
  ASSERT_TRUE(find_range(kBase + kBytes - 1).has_value());
  EXPECT_FALSE(find_range(kBase + kBytes).has_value());
  EXPECT_FALSE(find_range(kBase - 1).has_value());
  std::thread([] { EXPECT_TRUE(remove_range(kBase, MemoryKind::kDevice).has_value()); }).join();
  EXPECT_FALSE(find_range(kBase).has_value());
  bool held = false;
  EXPECT_FALSE(find_range(kBase, &held).has_value());
}

TEST_F(MemoryRangesTest, ReplacementRangeIsFound) {
  ASSERT_TRUE(add_range(range_at(kBase, 1)));
  EXPECT_EQ(find_range(kBase)->context, 1U);
  std::thread([] {
    take_ranges_of_context(1);
    EXPECT_TRUE(add_range(range_at(kBase, 2)));
  }).join();
  EXPECT_EQ(find_range(kBase)->context, 2U);
}

TEST_F(MemoryRangesTest, SharedMarkOfOtherThreadIsVisible) {
  ASSERT_TRUE(add_range(range_at(kBase)));
  EXPECT_FALSE(find_range(kBase)->shared);
  std::thread([] { EXPECT_TRUE(note_shared(kBase)); }).join();
  EXPECT_TRUE(find_range(kBase)->shared);
}

// More ranges than a thread caches.
TEST_F(MemoryRangesTest, FindsMoreRangesThanThreadCaches) {
  constexpr std::uint64_t kCount = 20;
  for (std::uint64_t i = 0; i < kCount; ++i) ASSERT_TRUE(add_range(range_at(kBase + i * kBytes)));
  for (int turn = 0; turn < 3; ++turn) {
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const auto found = find_range(kBase + i * kBytes + 7);
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->base, kBase + i * kBytes);
    }
  }
}

}  // namespace
}  // namespace gpurun::client::interpose
