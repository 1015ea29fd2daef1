// Protects secrets: fill_random() fills all of what it is given, each time differently.
#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace gpurun {
namespace {

TEST(Random, FillsEveryPartOfALargeBuffer) {
  std::vector<std::uint8_t> bytes(std::size_t{1} << 20);
  ASSERT_TRUE(fill_random(mutable_bytes(bytes.data(), bytes.size())).ok());
  // 64 bytes that are all zero have a probability of 2^-512.
  for (std::size_t at = 0; at < bytes.size(); at += 64) {
    ASSERT_FALSE(std::all_of(bytes.begin() + at, bytes.begin() + at + 64, [](std::uint8_t byte) {
      return byte == 0;
    })) << at;
  }
}

TEST(Random, DiffersEachTime) {
  const auto one = random_array<std::array<std::uint8_t, 16>>();
  const auto two = random_array<std::array<std::uint8_t, 16>>();
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(*one, *two);
}

TEST(Random, NothingToFillIsNoError) { EXPECT_TRUE(fill_random(MutableBytes()).ok()); }

}  // namespace
}  // namespace gpurun
