// Hexadecimal digits: the way to bytes accepts exactly what the way from bytes writes.
#include "base/hex.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace gpurun {
namespace {

constexpr std::array<std::uint8_t, 4> kBytes = {0x00, 0x9a, 0xbf, 0xff};

TEST(Hex, RoundTripsBytes) {
  EXPECT_EQ(hex_of(bytes_of(kBytes)), "009abfff");
  EXPECT_EQ(hex_of({}), "");
  std::array<std::uint8_t, 4> back{};
  ASSERT_TRUE(parse_hex("009abfff", mutable_bytes(back.data(), back.size())));
  EXPECT_EQ(back, kBytes);
}

TEST(Hex, RejectsMalformedText) {
  std::array<std::uint8_t, 2> into{};
  for (const char* text : {"", "009", "009a0", "009abf", "009A", "00 9", "0x12", "00:9", "g000"}) {
    EXPECT_FALSE(parse_hex(text, mutable_bytes(into.data(), into.size()))) << text;
  }
}

}  // namespace
}  // namespace gpurun
