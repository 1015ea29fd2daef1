// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104). Pure functions without allocation, safe from
// any thread.
//
// The work is done by libcrypto's code for the processor, which needs no library context, provider
// or configuration file. OpenSSL calls those functions deprecated. Its newer ones allocate, and
// load a provider into the program's process.
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
  Sha256() noexcept;
  void update(ByteView bytes) noexcept;
  Sha256Digest finish() noexcept;  // Once. The object is spent.

 private:
  // Holds libcrypto's SHA256_CTX, so that no other file includes a header of OpenSSL for it.
  alignas(8) std::array<std::byte, 112> state_;
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
