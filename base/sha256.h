// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104). Pure functions without allocation, safe from
// any thread. With them the client library proves an attach and names images without a
// cryptographic library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace gpurun {

using Sha256Digest = std::array<std::uint8_t, 32>;

// SHA-256, fed in pieces.
class Sha256 {
 public:
  void update(ByteView bytes) noexcept;
  Sha256Digest finish() noexcept;  // Once. The object is spent.

 private:
  void absorb(const std::uint8_t* block) noexcept;

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> pending_{};
  std::size_t pending_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

Sha256Digest sha256(ByteView bytes) noexcept;

// HMAC-SHA-256 with a key of any length, fed in pieces.
class HmacSha256 {
 public:
  explicit HmacSha256(ByteView key) noexcept;
  void update(ByteView bytes) noexcept { inner_.update(bytes); }
  Sha256Digest finish() noexcept;  // Once. The object is spent.

 private:
  Sha256 inner_;
  Sha256 outer_;
};

// Returns true when both are equal. The time does not depend on where they differ.
bool equal_in_constant_time(ByteView left, ByteView right) noexcept;

}  // namespace gpurun
