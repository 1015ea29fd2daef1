// Key schedule: what TLS 1.3 derives from its secrets (RFC 8446, section 7.1) for SHA-256, by our
// own HMAC. The record layer uses it, and so does code that checks a ClientHello without OpenSSL.
// Pure. Any thread.
#pragma once

#include <string_view>

#include "base/bytes.h"
#include "base/sha256.h"

namespace gpurun::transport::tls {

using Secret = Sha256Digest;

// HKDF-Extract with a salt of zeros: the early secret of a pre-shared key.
Secret extract_early(const Secret& pre_shared_key);

// HKDF-Expand-Label. `into` has at most 32 bytes (one block). `label` and `context` fit a TLS
// label.
void expand_label(const Secret& secret, std::string_view label, ByteView context,
                  MutableBytes into);

// The traffic secret after a key update (section 7.2).
Secret next_traffic_secret(const Secret& secret);

// The binder of an external pre-shared key (section 4.2.11.2) over a ClientHello without its
// binders, handshake header included.
Secret external_binder(const Secret& pre_shared_key, ByteView truncated_hello);

}  // namespace gpurun::transport::tls
