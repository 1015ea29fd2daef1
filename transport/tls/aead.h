// Aead: AES-128-GCM (NIST SP 800-38D) under one key: messages one after the other, each in pieces.
//
// OpenSSL 3.0 computes it in registers of 128 bits. Where the processor has AES and carry-less
// multiplication for 512 (VAES, VPCLMULQDQ), and the build has it, Intel's library for IPsec is 2.6
// times as fast (docs/adr/0017). Both compute the same; tests compare them.
//
// One object for each direction. It belongs to one thread at a time.
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

// Who computes.
enum class AeadBy { kOpenssl, kWideRegisters };
// Whether this build has the latter, and this processor what it needs. Any thread.
bool wide_registers() noexcept;

class Aead {
 public:
  // `known_by`: by which of the libraries, OpenSSL's. kInternal: OpenSSL does not work, or there
  // are no wide registers.
  static Result<std::unique_ptr<Aead>> create(bool to_seal, KnownBy known_by, AeadBy by);

  Aead() = default;
  Aead(const Aead&) = delete;
  Aead& operator=(const Aead&) = delete;
  virtual ~Aead() = default;

  virtual AeadBy by() const noexcept = 0;

  // All answer false when the library fails; what the messages hold is not asked before check().

  // Of all messages that begin from now on.
  virtual bool set_key(const AeadKey& key) = 0;
  // A message begins; what was begun before is dropped. Never two that are sealed with one key and
  // one nonce.
  virtual bool begin(const AeadNonce& nonce, ByteView additional) = 0;
  // Its next bytes, encrypted or decrypted, go to `to`, which has room for as many elsewhere.
  virtual bool pass(ByteView from, std::byte* to) = 0;
  // It is over; the kTagBytes of its tag go to `tag`.
  virtual bool seal(std::byte* tag) = 0;
  // Likewise; false also where `tag` is another one: then nobody may trust what pass() gave.
  virtual bool check(const std::byte* tag) = 0;
};

}  // namespace gpurun::transport::tls
