// Integrity value: without the right value no program with CUDA's runtime starts (error 103).
#include "driver_abi/semantics/integrity.h"

#include <gtest/gtest.h>

#include <string>

namespace gpurun::driver_abi {
namespace {

std::string hex(const Md2Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string md2(const std::string& text) {
  Md2 hash;
  hash.update(byte_view(text.data(), text.size()));
  return hex(hash.finish());
}

// RFC 1319, appendix A.5.
TEST(IntegrityTest, Md2MatchesRfc1319) {
  EXPECT_EQ(md2(""), "8350e5a3e24c153df2275c9f80692773");
  EXPECT_EQ(md2("a"), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
  EXPECT_EQ(md2("abc"), "da853b0d3f88d99b30283a69e6ded6bb");
  EXPECT_EQ(md2("message digest"), "ab4f496bfb2a530b219ff33031fe06b0");
  EXPECT_EQ(md2("abcdefghijklmnopqrstuvwxyz"), "4e8ddff3650292ab5a4108c3aa47940b");
  EXPECT_EQ(md2("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            "da33def2a42df13975352846c30338cd");
  const std::string digits =
      "12345678901234567890123456789012345678901234567890123456789012345678901234567890";
  EXPECT_EQ(md2(digits), "d5976f79d83d3a0dc9806c3c66f3efd8");

  Md2 in_pieces;
  for (const char& c : digits) in_pieces.update(byte_view(&c, 1));
  EXPECT_EQ(hex(in_pieces.finish()), md2(digits));
}

IntegrityFacts facts(std::uint32_t version) {
  return {.driver_version = 13000,
          .version = version,
          .process_id = 0x1234,
          .thread_id = 0x5678,
          .cudart_table = 0x1000,
          .integrity_table = 0x2000,
          .integrity_function = 0x3000,
          .unix_seconds = 0x60000000};
}

// The values that CUDA's runtime accepts, as measured.
TEST(IntegrityTest, ValueMatchesCudaRuntime) {
  IntegrityDevice device{{}, 0, 2, 0};
  for (std::uint8_t i = 0; i < 16; ++i) device.uuid[i] = i;
  IntegrityValue with(facts(13002));
  with.add(device);
  EXPECT_EQ(hex(with.finish()), "1b8903994fa279a2d149c356a368c99a");

  IntegrityValue without(facts(13002));
  EXPECT_EQ(hex(without.finish()), "9630baffc891962fd00a99ad596d409a");
}

TEST(IntegrityTest, FirstTwoVersionsHaveFixedValues) {
  EXPECT_EQ(hex(IntegrityValue(facts(13000)).finish()), "5c67cb031c184133e8d14c1faa83d38e");
  EXPECT_EQ(hex(IntegrityValue(facts(13001)).finish()), "5c67cb031c184118e8d14c1faa83d38e");
}

}  // namespace
}  // namespace gpurun::driver_abi
