// Proofs: how both ends of a link show that they know a secret without sending it.
//
// Everything is HMAC-SHA-256. A link's key is derived from the secret and fresh numbers of both
// ends; each control frame of the link then ends in a tag over direction, counter and payload, so
// that a frame cannot be altered, repeated, reordered or sent back.
//
//   control link   key = link_key(secret, kControl, server nonce, client nonce, {})
//    inside TLS    key = link_key(secret, kControlInTls, channel's exporter, client nonce, {})
//   lease          key = lease_key(control link's key, lease id)
//   ticket         key = ticket_key(lease's key, ticket id)
//   attach         key = link_key(ticket's key, kAttach, ticket's challenge, client nonce, session)
//
// The secret is the operator's, or a user's token's (token.h). What a TLS channel's two ends alone
// share, its exporter, stands for the server's nonce inside it: it is as fresh, both know it once
// they have shaken hands, so that the client need not wait to be told, and a proof holds on that
// channel only. A man in the middle has a channel of his own with each, and no proof passes between
// them. An attach inside TLS has session_identity.h's keys.
//
// Any thread.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sha256.h"

namespace gpurun::protocol {

using Key = Sha256Digest;
using Tag = Sha256Digest;
using Nonce = std::array<std::uint8_t, 32>;
// Names a lease, a ticket or a session. Not secret.
using Id = std::array<std::uint8_t, 16>;

enum class Link : std::uint8_t { kControl = 1, kAttach = 2, kTlsSession = 3, kControlInTls = 4 };
enum class Sender : std::uint8_t { kClient = 1, kServer = 2 };

Key link_key(ByteView secret, Link link, const Nonce& server, const Nonce& client, const Id& id);
Key lease_key(const Key& control_link, const Id& lease);
Key ticket_key(const Key& lease, const Id& ticket);

Tag frame_tag(const Key& key, Sender sender, std::uint64_t counter, ByteView payload);

// Fills `into` from the kernel's generator; waits for it at boot. kUnavailable: it fails.
Status fill_random(MutableBytes into);
template <typename Array>
Result<Array> random_array() {
  Array array;
  GPURUN_RETURN_IF_ERROR(fill_random(mutable_bytes(array.data(), array.size())));
  return array;
}

}  // namespace gpurun::protocol
