// Aead: AES-128-GCM (NIST SP 800-38D) under one key. It processes one message after the other, each
// in pieces.
//
// OpenSSL 3.0 computes it in registers of 128 bits. Intel's library for IPsec is faster where the
// build has it, and the processor has AES and carry-less multiplication for 512 bits (VAES
// and VPCLMULQDQ, docs/adr/0017). Both compute the same, and tests compare them.
//
// Each direction has an object of its own. It belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/tls/library.h"

namespace gpurun::transport::tls {

using AeadKey = std::array<std::uint8_t, 16>;
using AeadNonce = std::array<std::uint8_t, 12>;
inline constexpr std::size_t kTagBytes = 16;

// The library that computes.
enum class AeadBy { kOpenssl, kVaes512 };
// True when this build has kVaes512, and this processor has the instructions for it. Any
// thread.
bool has_vaes512() noexcept;

class Aead {
 public:
  // `auth_mode` selects the OpenSSL library context (library.h). kInternal: OpenSSL does not work,
  // or has_vaes512() is false.
  static Result<std::unique_ptr<Aead>> create(bool to_seal, AuthMode auth_mode, AeadBy by);

  Aead() = default;
  Aead(const Aead&) = delete;
  Aead& operator=(const Aead&) = delete;
  virtual ~Aead() = default;

  virtual AeadBy by() const noexcept = 0;

  // All of these return false when the library fails. The content of a message is not verified
  // before check().

  // For all messages that begin from now on.
  virtual bool set_key(const AeadKey& key) = 0;
  // Begins a message, and drops one that was begun before. Danger: never seal two messages with the
  // same key and nonce.
  virtual bool begin(const AeadNonce& nonce, ByteView additional) = 0;
  // Encrypts or decrypts the next bytes to `to`, which has room for as many. `to` does not overlap
  // `from`.
  virtual bool pass(ByteView from, std::byte* to) = 0;
  // Ends the message and writes the kTagBytes of its tag to `tag`.
  virtual bool seal(std::byte* tag) = 0;
  // Ends the message and compares its tag with `tag`. False also when they differ. Then the bytes
  // that pass() gave must not be trusted.
  virtual bool check(const std::byte* tag) = 0;
};

}  // namespace gpurun::transport::tls
