// MemoryRanges: an address has the attributes that were set last, by any thread. A range that one
// thread has looked up before is no longer found after another thread has removed it. Its
// replacement is found.
#include "client/interpose/memory/memory_ranges.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

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

// A multiple of the blocks of addresses, with some of them free behind it. ThreadSanitizer does not
// allow all addresses.
std::uint64_t free_place() {
  constexpr std::uint64_t kSpan = std::uint64_t{16} << 20, kAligned = std::uint64_t{4} << 20;
  void* const place = mmap(nullptr, kSpan, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(place, MAP_FAILED);
  munmap(place, kSpan);
  return (reinterpret_cast<std::uint64_t>(place) + kAligned) & ~(kAligned - 1);
}

bool is_mapped(std::uint64_t address) {
  return msync(reinterpret_cast<void*>(address), kBytes, MS_ASYNC) == 0;
}

TEST_F(MemoryRangesTest, OpenedAddressesAreMemoryOfZerosUntilTheyAreClosed) {
  const std::uint64_t place = free_place();
  ASSERT_TRUE(open_addresses(place, 2 * kBytes));
  auto* const word = reinterpret_cast<volatile int*>(place + kBytes);
  EXPECT_EQ(*word, 0);
  *word = 5;
  EXPECT_FALSE(open_addresses(place + kBytes, kBytes)) << "in use";
  EXPECT_EQ(*word, 5);
  close_addresses(place, 2 * kBytes);
  EXPECT_TRUE(is_mapped(place)) << "blocked";
  bool held = false;
  EXPECT_FALSE(find_range(place + kBytes, &held).has_value());
  EXPECT_TRUE(held);
  ASSERT_TRUE(open_addresses(place, 3 * kBytes)) << "blocked by this process, and free behind";
  EXPECT_EQ(*word, 0);
  *reinterpret_cast<volatile int*>(place + 2 * kBytes) = 6;
  close_addresses(place, 3 * kBytes);
}

// A block of addresses around device memory holds variables, too. What is blocked beside them
// stays so.
TEST_F(MemoryRangesTest, BlockedAddressesOpenInPart) {
  const std::uint64_t device = free_place();
  ASSERT_TRUE(add_range(range_at(device)));
  EXPECT_FALSE(open_addresses(device, kBytes)) << "device memory";
  ASSERT_TRUE(open_addresses(device + 2 * kBytes, kBytes));
  *reinterpret_cast<volatile int*>(device + 2 * kBytes) = 1;
  bool held = false;
  for (const std::uint64_t beside : {device + kBytes, device + 3 * kBytes}) {
    EXPECT_FALSE(find_range(beside, &held).has_value());
    EXPECT_TRUE(held);
  }
  EXPECT_FALSE(find_range(device + 2 * kBytes, &held).has_value());
  EXPECT_FALSE(held);
  close_addresses(device + 2 * kBytes, kBytes);
}

TEST_F(MemoryRangesTest, AddressesOfOtherMemoryDoNotOpen) {
  void* const other =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(other, MAP_FAILED);
  *static_cast<volatile int*>(other) = 7;
  const auto address = reinterpret_cast<std::uint64_t>(other);
  EXPECT_FALSE(open_addresses(address, kBytes));
  EXPECT_FALSE(open_addresses(address - kBytes, 2 * kBytes));
  EXPECT_EQ(*static_cast<volatile int*>(other), 7);
  munmap(other, kBytes);
  EXPECT_FALSE(open_addresses(~std::uint64_t{4095}, 2 * kBytes)) << "wraps";
}

MemoryRange graph_range_at(std::uint64_t base, std::uint64_t bytes) {
  MemoryRange range = range_at(base);
  range.kind = MemoryKind::kGraph;
  range.bytes = bytes;
  return range;
}

// The driver has given the address of a graph that has ended to smaller memory.
TEST_F(MemoryRangesTest, OtherMemoryReplacesPartOfGraphMemory) {
  ASSERT_TRUE(add_range(graph_range_at(kBase, 4 * kBytes)));
  ASSERT_TRUE(add_range(range_at(kBase + kBytes)));
  const auto made = find_range(kBase + 2 * kBytes - 1);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->kind, MemoryKind::kDevice);
  EXPECT_EQ(made->base, kBase + kBytes);
  EXPECT_EQ(made->bytes, kBytes);
  EXPECT_EQ(find_range(kBase)->bytes, kBytes);
  EXPECT_EQ(find_range(kBase)->kind, MemoryKind::kGraph);
  EXPECT_EQ(find_range(kBase + 4 * kBytes - 1)->base, kBase + 2 * kBytes);
  EXPECT_FALSE(find_range(kBase + 4 * kBytes).has_value());
  EXPECT_TRUE(made->is_sure());
  EXPECT_FALSE(find_range(kBase)->is_sure());
}

TEST_F(MemoryRangesTest, GraphsShareAddresses) {
  ASSERT_TRUE(add_range(graph_range_at(kBase, 2 * kBytes)));
  ASSERT_TRUE(add_range(graph_range_at(kBase, kBytes)));
  EXPECT_EQ(find_range(kBase)->bytes, kBytes);
  EXPECT_EQ(find_range(kBase + kBytes)->kind, MemoryKind::kGraph);
  ASSERT_TRUE(add_range(graph_range_at(kBase - kBytes, 8 * kBytes)));
  EXPECT_EQ(find_range(kBase + kBytes)->base, kBase - kBytes);
}

TEST_F(MemoryRangesTest, GraphMemoryDoesNotReplaceOtherMemory) {
  ASSERT_TRUE(add_range(graph_range_at(kBase, kBytes)));
  ASSERT_TRUE(add_range(range_at(kBase + kBytes)));
  EXPECT_FALSE(add_range(graph_range_at(kBase, 2 * kBytes)));
  EXPECT_EQ(find_range(kBase)->bytes, kBytes);  // Nothing was changed.
  EXPECT_EQ(find_range(kBase + kBytes)->kind, MemoryKind::kDevice);
}

}  // namespace
}  // namespace gpurun::client::interpose
