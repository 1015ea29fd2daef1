// AEAD of TLS records: published test vectors, and equal results for messages in any pieces.
#include "transport/tls/aead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace gpurun::transport::tls {
namespace {

Bytes from_hex(std::string_view text) {
  Bytes bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
    bytes.push_back(
        static_cast<std::byte>(std::stoul(std::string(text.substr(at, 2)), nullptr, 16)));
  }
  return bytes;
}
template <typename Array>
Array array_of(std::string_view text) {
  const Bytes bytes = from_hex(text);
  Array array{};
  std::transform(bytes.begin(), bytes.end(), array.begin(),
                 [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  return array;
}

Aead made(bool to_seal, const AeadKey& key) {
  auto cipher = Aead::create(to_seal, AuthMode::kKey);
  EXPECT_TRUE(cipher.ok()) << cipher.status().to_string();
  EXPECT_TRUE(cipher->set_key(key));
  return *std::move(cipher);
}

// Encrypts or decrypts `from` in pieces that end at `ends`. The tag follows the result.
Bytes passed(Aead& cipher, const AeadNonce& nonce, ByteView additional, ByteView from,
             const std::vector<std::size_t>& ends) {
  Bytes to(from.size() + kTagBytes);
  EXPECT_TRUE(cipher.begin(nonce, additional));
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    EXPECT_TRUE(cipher.pass(from.subspan(begin, end - begin), to.data() + begin));
    begin = end;
  }
  EXPECT_TRUE(cipher.pass(from.subspan(begin), to.data() + begin));
  return to;
}
Bytes sealed(Aead& cipher, const AeadNonce& nonce, ByteView additional, ByteView plain,
             const std::vector<std::size_t>& ends = {}) {
  Bytes to = passed(cipher, nonce, additional, plain, ends);
  EXPECT_TRUE(cipher.seal(to.data() + plain.size()));
  return to;
}
// Empty: the tag does not match.
Bytes opened(Aead& cipher, const AeadNonce& nonce, ByteView additional, ByteView both,
             const std::vector<std::size_t>& ends = {}) {
  const std::size_t bytes = both.size() - kTagBytes;
  Bytes to = passed(cipher, nonce, additional, both.first(bytes), ends);
  if (!cipher.check(both.data() + bytes)) return {};
  to.resize(bytes);
  return to;
}

// "The Galois/Counter Mode of Operation (GCM)", McGrew and Viega, appendix B, test cases 1 to 4.
TEST(Aead, MatchesGcmTestVectors) {
  struct Case {
    std::string_view key, nonce, additional, plain, sealed;
  };
  constexpr std::string_view kKey = "feffe9928665731c6d6a8f9467308308";
  constexpr std::string_view kNonce = "cafebabefacedbaddecaf888";
  const Case cases[] = {
      {"00000000000000000000000000000000", "000000000000000000000000", "", "",
       "58e2fccefa7e3061367f1d57a4e7455a"},
      {"00000000000000000000000000000000", "000000000000000000000000", "",
       "00000000000000000000000000000000",
       "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"},
      {kKey, kNonce, "",
       "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449"
       "a6b525b16aedf5aa0de657ba637b391aafd255",
       "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac"
       "84aa051ba30b396a0aac973d58e091473f59854d5c2af327cd64a62cf35abd2ba6fab4"},
      {kKey, kNonce, "feedfacedeadbeeffeedfacedeadbeefabaddad2",
       "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449"
       "a6b525b16aedf5aa0de657ba637b39",
       "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac"
       "84aa051ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a47"}};
  for (const Case& one : cases) {
    const auto key = array_of<AeadKey>(one.key);
    const auto nonce = array_of<AeadNonce>(one.nonce);
    const Bytes additional = from_hex(one.additional), plain = from_hex(one.plain);
    const Bytes both = from_hex(one.sealed);
    Aead sealer = made(true, key);
    EXPECT_EQ(sealed(sealer, nonce, additional, plain), both);
    Aead opener = made(false, key);
    ASSERT_TRUE(opener.begin(nonce, additional));
    Bytes back(plain.size());
    ASSERT_TRUE(opener.pass(ByteView(both).first(plain.size()), back.data()));
    EXPECT_TRUE(opener.check(both.data() + plain.size()));
    EXPECT_EQ(back, plain);
  }
}

TEST(Aead, DetectsChangeOfAnyByte) {
  const AeadKey key = array_of<AeadKey>("feffe9928665731c6d6a8f9467308308");
  const AeadNonce nonce = array_of<AeadNonce>("cafebabefacedbaddecaf888");
  const Bytes additional = from_hex("1703030100"), plain(77, std::byte{5});
  Aead sealer = made(true, key);
  const Bytes both = sealed(sealer, nonce, additional, plain);
  Aead opener = made(false, key);
  EXPECT_EQ(opened(opener, nonce, additional, both), plain);
  for (std::size_t at = 0; at < both.size(); ++at) {
    Bytes altered = both;
    altered[at] ^= std::byte{1};
    EXPECT_TRUE(opened(opener, nonce, additional, altered).empty()) << at;
  }
  Bytes other = additional;
  other[4] ^= std::byte{0x80};
  EXPECT_TRUE(opened(opener, nonce, other, both).empty());
  AeadNonce next = nonce;
  ++next[11];
  EXPECT_TRUE(opened(opener, next, additional, both).empty());
  EXPECT_EQ(opened(opener, nonce, additional, both), plain) << "and it goes on after that";
}

TEST(Aead, SetKeyReplacesKey) {
  const AeadNonce nonce{};
  const Bytes plain(100, std::byte{7});
  const AeadKey keys[] = {array_of<AeadKey>("000102030405060708090a0b0c0d0e0f"),
                          array_of<AeadKey>("100102030405060708090a0b0c0d0e0f")};
  Aead sealer = made(true, keys[0]);
  const Bytes first = sealed(sealer, nonce, {}, plain);
  ASSERT_TRUE(sealer.set_key(keys[1]));
  EXPECT_NE(sealed(sealer, nonce, {}, plain), first);
  ASSERT_TRUE(sealer.set_key(keys[0]));
  EXPECT_EQ(sealed(sealer, nonce, {}, plain), first);
}

// Sizes around a block (16), around the steps of OpenSSL's vector code (256, 768), and around a
// record. The pieces of a message do not change the result.
TEST(Aead, AnyPiecesGiveSameResult) {
  std::mt19937_64 random(2);
  const auto bytes = [&random](std::size_t count) {
    Bytes made(count);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random());
    return made;
  };
  std::vector<std::size_t> sizes;
  for (std::size_t size = 0; size <= 300; ++size) sizes.push_back(size);
  for (std::size_t size :
       {767, 768, 769, 1023, 1535, 1537, 4095, 4096, 8191, 16383, 16384, 16385}) {
    sizes.push_back(size);
  }
  for (int i = 0; i < 200; ++i) sizes.push_back(random() % 20000);
  for (const std::size_t size : sizes) {
    AeadKey key;
    AeadNonce nonce;
    for (auto& byte : key) byte = static_cast<std::uint8_t>(random());
    for (auto& byte : nonce) byte = static_cast<std::uint8_t>(random());
    const Bytes plain = bytes(size), additional = bytes(random() % 40);
    const auto cut = [&random, size] {
      std::vector<std::size_t> ends;
      for (std::uint64_t i = random() % 5; i > 0; --i) ends.push_back(random() % (size + 1));
      std::sort(ends.begin(), ends.end());
      return ends;
    };
    Aead sealer = made(true, key), opener = made(false, key);
    const Bytes whole = sealed(sealer, nonce, additional, plain);
    ASSERT_EQ(sealed(sealer, nonce, additional, plain, cut()), whole) << size;
    if (size == 0) continue;
    ASSERT_EQ(opened(opener, nonce, additional, whole), plain) << size;
    ASSERT_EQ(opened(opener, nonce, additional, whole, cut()), plain) << size;
  }
}

}  // namespace
}  // namespace gpurun::transport::tls
