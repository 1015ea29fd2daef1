// What a ClientHello says of a pre-shared key, read by somebody who takes no part in the handshake:
// gpurund looks at it, finds the worker, and passes the connection on untouched.
//
// A small parser of our own, because what it reads is a stranger's: no OpenSSL, nothing is kept.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/tls/key_schedule.h"

namespace gpurun::transport::tls {

// The first byte of a connection whose client speaks TLS: a record of its handshake.
inline constexpr std::byte kHandshakeByte{22};

// How many bytes the first record has in all, once its first 5 have come (`bytes` may hold more).
// kProtocol: it does not begin a ClientHello.
inline constexpr std::size_t kHelloHeadBytes = 5;
Result<std::size_t> hello_record_bytes(ByteView bytes);

// Views into the record.
struct KeyOffer {
  ByteView identity;
  ByteView binder;     // 32 bytes.
  ByteView truncated;  // What the binder covers.
};

// `record` is whole. Nothing: a ClientHello that offers no pre-shared key, or not exactly one with
// a binder of SHA-256. kProtocol: no ClientHello, or one that contradicts itself, or is not whole.
Result<std::optional<KeyOffer>> read_key_offer(ByteView record);

// True when whoever wrote the ClientHello knows the key.
bool binder_proves(const KeyOffer& offer, const Secret& pre_shared_key);

}  // namespace gpurun::transport::tls
