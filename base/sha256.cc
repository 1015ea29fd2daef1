// SHA-256 of libcrypto, and HMAC as in RFC 2104.
#include "base/sha256.h"

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <cstring>

namespace gpurun {
namespace {

SHA256_CTX* context_of(std::array<std::byte, 112>& state) {
  static_assert(sizeof(SHA256_CTX) == sizeof state && alignof(SHA256_CTX) <= 8);
  return reinterpret_cast<SHA256_CTX*>(state.data());
}

}  // namespace

Sha256::Sha256() noexcept { SHA256_Init(context_of(state_)); }

void Sha256::update(ByteView bytes) noexcept {
  SHA256_Update(context_of(state_), bytes.data(), bytes.size());
}

Sha256Digest Sha256::finish() noexcept {
  Sha256Digest digest;
  SHA256_Final(digest.data(), context_of(state_));
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
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace gpurun
