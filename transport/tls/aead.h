// Aead: AES-128-GCM (NIST SP 800-38D) under one key, by OpenSSL. It processes one message after the
// other, each in pieces.
//
// Each direction has an object of its own. It belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/tls/library.h"

namespace gpurun::transport::tls {

using AeadKey = std::array<std::uint8_t, 16>;
using AeadNonce = std::array<std::uint8_t, 12>;
inline constexpr std::size_t kTagBytes = 16;

class Aead {
 public:
  // `auth_mode` selects the OpenSSL library context (library.h). kInternal: OpenSSL does not work.
  static Result<Aead> create(bool to_seal, AuthMode auth_mode);

  // All of these return false when OpenSSL fails. The content of a message is not verified before
  // check().

  // For all messages that begin from now on.
  bool set_key(const AeadKey& key);
  // Begins a message, and drops one that was begun before. Danger: never seal two messages with the
  // same key and nonce.
  bool begin(const AeadNonce& nonce, ByteView additional);
  // Encrypts or decrypts the next bytes to `to`, which has room for as many. `to` does not overlap
  // `from`.
  bool pass(ByteView from, std::byte* to);
  // Ends the message and writes the kTagBytes of its tag to `tag`.
  bool seal(std::byte* tag);
  // Ends the message and compares its tag with `tag`. False also when they differ. Then the bytes
  // that pass() gave must not be trusted.
  bool check(const std::byte* tag);

 private:
  Aead(Owned<EVP_CIPHER_CTX> context, bool to_seal)
      : context_(std::move(context)), to_seal_(to_seal ? 1 : 0) {}

  Owned<EVP_CIPHER_CTX> context_;
  int to_seal_;  // As EVP_CipherInit_ex2() takes it.
};

}  // namespace gpurun::transport::tls
