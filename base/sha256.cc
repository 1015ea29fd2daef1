// SHA-256 as in FIPS 180-4, section 6.2, and HMAC as in RFC 2104.
#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gpurun {
namespace {

constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t load_big(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 |
         std::uint32_t{at[3]};
}

void store_big(std::uint8_t* at, std::uint32_t value) {
  for (int byte = 0; byte < 4; ++byte) {
    at[byte] = static_cast<std::uint8_t>(value >> (24 - 8 * byte));
  }
}

}  // namespace

void Sha256::absorb(const std::uint8_t* block) noexcept {
  std::array<std::uint32_t, 64> words;
  for (std::size_t i = 0; i < 16; ++i) words[i] = load_big(block + 4 * i);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t w15 = words[i - 15];
    const std::uint32_t w2 = words[i - 2];
    const std::uint32_t s0 = std::rotr(w15, 7) ^ std::rotr(w15, 18) ^ (w15 >> 3);
    const std::uint32_t s1 = std::rotr(w2, 17) ^ std::rotr(w2, 19) ^ (w2 >> 10);
    words[i] = words[i - 16] + s0 + words[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + words[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += added[i];
}

void Sha256::update(ByteView bytes) noexcept {
  if (bytes.empty()) return;
  total_bytes_ += bytes.size();
  const auto* at = reinterpret_cast<const std::uint8_t*>(bytes.data());
  std::size_t left = bytes.size();
  if (pending_bytes_ > 0) {
    const std::size_t taken = std::min(left, pending_.size() - pending_bytes_);
    std::memcpy(pending_.data() + pending_bytes_, at, taken);
    pending_bytes_ += taken;
    at += taken;
    left -= taken;
    if (pending_bytes_ < pending_.size()) return;
    absorb(pending_.data());
    pending_bytes_ = 0;
  }
  for (; left >= pending_.size(); at += pending_.size(), left -= pending_.size()) absorb(at);
  std::memcpy(pending_.data(), at, left);
  pending_bytes_ = left;
}

Sha256Digest Sha256::finish() noexcept {
  const std::uint64_t bits = total_bytes_ * 8;
  pending_[pending_bytes_++] = 0x80;
  if (pending_bytes_ > 56) {
    std::fill(pending_.begin() + static_cast<std::ptrdiff_t>(pending_bytes_), pending_.end(),
              std::uint8_t{0});
    absorb(pending_.data());
    pending_bytes_ = 0;
  }
  std::fill(pending_.begin() + static_cast<std::ptrdiff_t>(pending_bytes_), pending_.end(),
            std::uint8_t{0});
  store_big(pending_.data() + 56, static_cast<std::uint32_t>(bits >> 32));
  store_big(pending_.data() + 60, static_cast<std::uint32_t>(bits));
  absorb(pending_.data());
  Sha256Digest digest;
  for (std::size_t i = 0; i < 8; ++i) store_big(digest.data() + 4 * i, state_[i]);
  return digest;
}

Sha256Digest sha256(ByteView bytes) noexcept {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

HmacSha256::HmacSha256(ByteView key) noexcept {
  std::array<std::uint8_t, 64> block{};
  if (key.size() > block.size()) {
    const Sha256Digest digest = sha256(key);
    std::memcpy(block.data(), digest.data(), digest.size());
  } else if (!key.empty()) {
    std::memcpy(block.data(), key.data(), key.size());
  }
  std::array<std::uint8_t, 64> padded;
  for (std::size_t i = 0; i < 64; ++i) padded[i] = static_cast<std::uint8_t>(block[i] ^ 0x36);
  inner_.update(bytes_of(padded));
  for (std::size_t i = 0; i < 64; ++i) padded[i] = static_cast<std::uint8_t>(block[i] ^ 0x5c);
  outer_.update(bytes_of(padded));
}

Sha256Digest HmacSha256::finish() noexcept {
  const Sha256Digest inner = inner_.finish();
  outer_.update(bytes_of(inner));
  return outer_.finish();
}

bool equal_in_constant_time(ByteView left, ByteView right) noexcept {
  if (left.size() != right.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    difference |= std::to_integer<unsigned>(left[i] ^ right[i]);
  }
  return difference == 0;
}

}  // namespace gpurun
