// SHA-256 and HMAC-SHA-256: correct for the standards' vectors. Every proof and image name depends
// on them.
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace gpurun {
namespace {

ByteView text(std::string_view characters) {
  return byte_view(characters.data(), characters.size());
}

std::string hex(const Sha256Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t byte : digest) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string hmac(std::string_view key, std::string_view data) {
  HmacSha256 hash(text(key));
  hash.update(text(data));
  return hex(hash.finish());
}

// NIST's examples for FIPS 180.
TEST(Sha256, MatchesFips180Examples) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(text("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(text(std::string(1'000'000, 'a')))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DigestDoesNotDependOnUpdateSizes) {
  const std::string data(200, 'x');
  for (std::size_t bytes = 0; bytes <= data.size(); ++bytes) {
    Sha256 hash;
    hash.update(text(std::string_view(data).substr(0, bytes)));
    hash.update(text(std::string_view(data).substr(bytes)));
    EXPECT_EQ(hash.finish(), sha256(text(data))) << bytes;
  }
}

// RFC 4231, cases 1, 2, 3, 6 and 7.
TEST(HmacSha256, MatchesRfc4231Vectors) {
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(
      hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hmac(std::string(131, '\xaa'),
                 "This is a test using a larger than block-size key and a larger than block-size "
                 "data. The key needs to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(EqualInConstantTime, ComparesLengthAndEveryByte) {
  EXPECT_TRUE(equal_in_constant_time(text("abc"), text("abc")));
  EXPECT_FALSE(equal_in_constant_time(text("abc"), text("abd")));
  EXPECT_FALSE(equal_in_constant_time(text("abc"), text("bbc")));
  EXPECT_FALSE(equal_in_constant_time(text("abc"), text("ab")));
}

}  // namespace
}  // namespace gpurun
