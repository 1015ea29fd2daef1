// Address parts: what a set of ranges leaves out of another range, at its edges and between them.
#include "base/address_parts.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpurun {
namespace {

constexpr auto kEndOf = [](std::uint64_t end) { return end; };
using Parts = std::vector<AddressPart>;

TEST(AddressPartsTest, ReturnsWhatNoRangeHolds) {
  std::map<std::uint64_t, std::uint64_t> ranges = {{10, 20}, {20, 30}, {40, 50}};
  EXPECT_EQ(parts_outside(ranges, 0, 60, kEndOf), (Parts{{0, 10}, {30, 40}, {50, 60}}));
  EXPECT_EQ(parts_outside(ranges, 15, 45, kEndOf), (Parts{{30, 40}}));
  EXPECT_EQ(parts_outside(ranges, 30, 40, kEndOf), (Parts{{30, 40}}));
  EXPECT_EQ(parts_outside(ranges, 29, 41, kEndOf), (Parts{{30, 40}}));
  EXPECT_EQ(parts_outside(ranges, 50, 51, kEndOf), (Parts{{50, 51}}));
  EXPECT_EQ(parts_outside(ranges, 9, 10, kEndOf), (Parts{{9, 10}}));
  EXPECT_EQ(parts_outside(ranges, 12, 30, kEndOf), Parts());
  EXPECT_EQ(parts_outside(ranges, 5, 5, kEndOf), Parts());
  ranges.clear();
  EXPECT_EQ(parts_outside(ranges, 5, 8, kEndOf), (Parts{{5, 8}}));
}

// A variable may begin in the pages of another one. Then it lies in two mirrored blocks.
TEST(AddressPartsTest, PartOfEachRangeIsOne) {
  std::map<std::uint64_t, std::uint64_t> ranges = {{10, 20}, {20, 30}, {40, 50}};
  EXPECT_EQ(parts_inside(ranges, 15, 45, kEndOf), (Parts{{15, 20}, {20, 30}, {40, 45}}));
  EXPECT_EQ(parts_inside(ranges, 10, 20, kEndOf), (Parts{{10, 20}}));
  EXPECT_EQ(parts_inside(ranges, 12, 13, kEndOf), (Parts{{12, 13}}));
  EXPECT_EQ(parts_inside(ranges, 30, 40, kEndOf), Parts());
  EXPECT_EQ(parts_inside(ranges, 0, 100, kEndOf), (Parts{{10, 20}, {20, 30}, {40, 50}}));
}

TEST(AddressPartsTest, FirstRangeBeyondMayHoldTheAddress) {
  std::map<std::uint64_t, std::uint64_t> ranges = {{10, 20}, {40, 50}};
  EXPECT_EQ(first_range_beyond(ranges, 0, kEndOf)->first, 10u);
  EXPECT_EQ(first_range_beyond(ranges, 19, kEndOf)->first, 10u);
  EXPECT_EQ(first_range_beyond(ranges, 20, kEndOf)->first, 40u);
  EXPECT_EQ(first_range_beyond(ranges, 50, kEndOf), ranges.end());
}

}  // namespace
}  // namespace gpurun
