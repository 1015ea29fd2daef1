// TLS 1.3's record layer (RFC 8446, section 5) for AES-128-GCM, with one object for each direction.
//
// OpenSSL's SSL object does only the handshake. Afterwards each direction has its own key and
// counter, so that one thread may send while another receives, without a lock. Bytes are encrypted
// from where they are and decrypted to where they belong. Each object belongs to one thread at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "transport/tls/aead.h"
#include "transport/tls/key_schedule.h"
#include "transport/tls/library.h"

namespace gpurun::transport::tls {

enum class Content : std::uint8_t { kAlert = 21, kHandshake = 22, kApplicationData = 23 };

inline constexpr std::size_t kRecordHeaderBytes = 5;
// A record's content at most, by the RFC, and with what protection and padding may add.
inline constexpr std::size_t kPlainBytesMax = std::size_t{1} << 14;
inline constexpr std::size_t kSealedBytesMax = kPlainBytesMax + 256;
// The size of a record with `plain` bytes of content, as we make it: without padding.
constexpr std::size_t sealed_record_bytes(std::size_t plain) {
  return kRecordHeaderBytes + plain + 1 + kTagBytes;
}

// A direction's key, and the number of its next record.
class Protection {
 public:
  // `auth_mode` is the handshake's. kInternal: OpenSSL does not work.
  static Result<std::unique_ptr<Protection>> create(const Secret& traffic_secret, bool to_seal,
                                                    AuthMode auth_mode = AuthMode::kKey);
  ~Protection();
  Protection(const Protection&) = delete;
  Protection& operator=(const Protection&) = delete;

  // Writes one record of sealed_record_bytes() to `into`, which must not overlap `parts`. All
  // `parts` together have at most kPlainBytesMax bytes.
  Status seal(Content type, std::span<const ByteView> parts, std::byte* into);

  // `record` is whole, header included. Its content goes to the front of `first`, and what does not
  // fit there to `rest`, which has room for kSealedBytesMax. The bytes must not be trusted before
  // open() returns, and a failure wipes them. kProtocol: the peer has not sealed this record.
  struct Opened {
    Content type = Content::kApplicationData;
    std::size_t in_first = 0;
    std::size_t in_rest = 0;
  };
  Result<Opened> open(ByteView record, MutableBytes first, MutableBytes rest);

  std::uint64_t sequence() const noexcept { return sequence_; }
  // Takes back the records that were sealed since `sequence`. Danger: only when no byte of them has
  // left this process. A key and a number must never protect two records that others see.
  void take_back(std::uint64_t sequence) noexcept { sequence_ = sequence; }
  // Switches to the next key of this direction. Its records count from 0 again.
  Status update();

 private:
  explicit Protection(Aead cipher) : cipher_(std::move(cipher)) {}

  Status set_key(const Secret& traffic_secret);
  bool begin_record(const std::byte* header);

  Aead cipher_;
  Secret secret_{};
  AeadNonce base_nonce_{};
  std::uint64_t sequence_ = 0;
};

}  // namespace gpurun::transport::tls
