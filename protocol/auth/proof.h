// Proofs: how both ends of a link prove that they know a secret without sending it.
//
// Everything is HMAC-SHA-256. A link's key is derived from the secret and from fresh random numbers
// of both ends. Each control frame of the link then ends in a tag over direction, counter and
// payload. So a frame cannot be altered, repeated, reordered or reflected.
//
//   control link   key = link_key(secret, kControl, server nonce, client nonce, {})
//    inside TLS    key = link_key(secret, kControlInTls, channel's exporter, client nonce, {})
//
//   lease          key = lease_key(control link's key, lease id)
//   ticket         key = ticket_key(lease's key, ticket id)
//
//   attach         key = link_key(ticket's key, kAttach, ticket's challenge, client nonce, session)
//
// The secret is the operator's, or that of a user's token (token.h).
//
// Inside TLS, the channel's exporter replaces the server's nonce. Only the channel's two ends know
// it, and it is as fresh. They know it after the handshake, so the client need not wait for a
// message. A proof holds on that channel only. A man in the middle has a separate channel with each
// end, and cannot pass a proof from one to the other. An attach inside TLS has the keys of
// session_identity.h.
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
// The name of a lease, a ticket or a session. Not secret.
using Id = std::array<std::uint8_t, 16>;

enum class Link : std::uint8_t { kControl = 1, kAttach = 2, kTlsSession = 3, kControlInTls = 4 };
enum class Sender : std::uint8_t { kClient = 1, kServer = 2 };

Key link_key(ByteView secret, Link link, const Nonce& server, const Nonce& client, const Id& id);
Key lease_key(const Key& control_link, const Id& lease);
Key ticket_key(const Key& lease, const Id& ticket);

Tag frame_tag(const Key& key, Sender sender, std::uint64_t counter, ByteView payload);

}  // namespace gpurun::protocol
