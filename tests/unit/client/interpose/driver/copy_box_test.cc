// The box of a copy: which lines and slices merge, what has gaps, and how far a side reaches.
#include "client/interpose/driver/copy_box.h"

#include <gtest/gtest.h>

#include <limits>

namespace gpurun::client::interpose {
namespace {

// From pageable to device memory, with the pitches of both sides.
Copy box(std::uint64_t width, std::uint64_t lines, std::uint64_t slices, std::uint64_t line_pitch,
         std::uint64_t slice_pitch) {
  Copy copy;
  copy.source = {Place::kPageable, 0x10'0000, line_pitch, slice_pitch};
  copy.destination = {Place::kDevice, 0x20'0000, line_pitch, slice_pitch};
  copy.width = width;
  copy.lines = lines;
  copy.slices = slices;
  return copy;
}

void expect_size(const Copy& copy, std::uint64_t width, std::uint64_t lines, std::uint64_t slices) {
  EXPECT_EQ(copy.width, width);
  EXPECT_EQ(copy.lines, lines);
  EXPECT_EQ(copy.slices, slices);
}

TEST(CopyBox, DenseBoxMergesIntoOneLine) {
  Copy copy = box(16, 4, 3, 16, 64);
  copy.merge();
  expect_size(copy, 192, 1, 1);
  EXPECT_TRUE(copy.single_line());
}

TEST(CopyBox, DenseSlicesBecomeLines) {
  Copy copy = box(16, 4, 3, 16, 100);
  copy.merge();
  expect_size(copy, 64, 3, 1);
  EXPECT_EQ(copy.source.line_pitch, 100U);
  EXPECT_EQ(copy.destination.line_pitch, 100U);
}

TEST(CopyBox, SingleLineSlicesBecomeLines) {
  Copy copy = box(16, 1, 3, 20, 100);
  copy.merge();
  expect_size(copy, 16, 3, 1);
  EXPECT_EQ(copy.source.line_pitch, 100U);
}

TEST(CopyBox, GapOnOneSidePreventsMerge) {
  Copy copy = box(16, 4, 3, 16, 64);
  copy.destination.line_pitch = 32;
  copy.destination.slice_pitch = 128;
  copy.merge();
  expect_size(copy, 16, 4, 3);
}

TEST(CopyBox, ArrayCopyNeverMerges) {
  Copy copy = box(16, 4, 3, 16, 64);
  copy.destination = {};
  copy.destination.place = Place::kArray;
  copy.merge();
  expect_size(copy, 16, 4, 3);
  EXPECT_TRUE(copy.has_array());
  EXPECT_TRUE(copy.destination.by_device());
}

TEST(CopyBox, SideIsDenseOnlyWithoutGaps) {
  const Copy dense = box(16, 4, 3, 16, 64), lines = box(16, 4, 1, 20, 80);
  const Copy slices = box(16, 4, 3, 16, 65), line = box(16, 1, 1, 100, 100);
  EXPECT_TRUE(dense.is_dense(dense.source));
  EXPECT_FALSE(lines.is_dense(lines.source));
  EXPECT_FALSE(slices.is_dense(slices.source));
  EXPECT_TRUE(line.is_dense(line.source));
}

TEST(CopyBox, ExtentReachesEndOfLastLine) {
  const Copy copy = box(16, 4, 3, 20, 100);
  EXPECT_EQ(extent(copy.source, copy), 2 * 100 + 3 * 20 + 16U);
}

TEST(CopyBox, OverflowingSideHasNoExtent) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const Copy slices = box(16, 1, 3, 16, kMost / 2 + 1), lines = box(16, 3, 1, kMost / 2 + 1, 16);
  const Copy sum = box(16, 2, 2, kMost / 2 + 1, kMost / 2 + 1), width = box(16, 2, 1, kMost - 8, 0);
  for (const Copy& copy : {slices, lines, sum, width}) {
    EXPECT_EQ(extent(copy.source, copy), std::nullopt);
  }
}

}  // namespace
}  // namespace gpurun::client::interpose
