// SessionIdentity: which connection of which session a TLS ClientHello begins, and the keys that go
// with it. The identity is the name of the pre-shared key: anybody on the way may read it, and it
// holds no secret.
//
//   session key  = link_key(ticket's key, kTlsSession, ticket's challenge, {}, session)
//   attach key   = link_key(session key, kAttach, {}, client nonce, session)
//
// The session key is the pre-shared key of all connections of one session, and the only one that
// its worker is given: it opens no other session of the lease. The attach key tags the Attach and
// Accept messages inside, as it does without TLS. Any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "protocol/proof.h"

namespace gpurun::protocol {

struct SessionIdentity {
  Id lease{};
  Id ticket{};
  Id session{};             // Minted by the client, and never used again.
  std::uint16_t index = 0;  // Which connection: 0 is the log. Below count.
  std::uint16_t count = 0;  // 2 to limits::kConnectionsMax.
};

Bytes encode_identity(const SessionIdentity& identity);
// Empty: the name of something else, or one out of bounds.
std::optional<SessionIdentity> decode_identity(ByteView bytes);

Key tls_session_key(const Key& ticket_key, const Nonce& challenge, const Id& session);
Key attach_key_inside(const Key& tls_session_key, const Nonce& client, const Id& session);

}  // namespace gpurun::protocol
