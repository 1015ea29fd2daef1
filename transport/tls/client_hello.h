// ClientHello parser: reads what a ClientHello says of a pre-shared key, without taking part in the
// handshake. gpurund reads it, finds the worker, and passes the connection on untouched.
//
// It is a small parser of our own without OpenSSL, because its input comes from an untrusted peer.
// It keeps no state. Pure. Any thread.
#pragma once

#include <cstddef>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/tls/key_schedule.h"

namespace gpurun::transport::tls {

// The first byte of a connection on which the client speaks TLS: a handshake record.
inline constexpr std::byte kHandshakeByte{22};

// Total size of the first record in bytes, once its first kHelloHeadBytes have come. `bytes` may
// hold more. kProtocol: the record does not begin a ClientHello.
inline constexpr std::size_t kHelloHeadBytes = 5;
Result<std::size_t> hello_record_bytes(ByteView bytes);

// Views into the record.
struct KeyOffer {
  ByteView identity;
  ByteView binder;     // 32 bytes.
  ByteView truncated;  // What the binder covers.
};

// `record` is a whole record. Returns nothing for a ClientHello that does not offer exactly one
// pre-shared key with a SHA-256 binder. kProtocol: not a ClientHello, or one that contradicts
// itself or is not whole.
Result<std::optional<KeyOffer>> read_key_offer(ByteView record);

// True when the writer of the ClientHello knows the key.
bool binder_proves(const KeyOffer& offer, const Secret& pre_shared_key);

}  // namespace gpurun::transport::tls
