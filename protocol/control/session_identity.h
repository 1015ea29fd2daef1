// SessionIdentity: names the session and connection that a TLS ClientHello begins, and gives the
// keys for it. The identity is the name of the pre-shared key. It travels in clear text and holds
// no secret.
//
//   session key  = link_key(ticket's key, kTlsSession, ticket's challenge, {}, session)
//   attach key   = link_key(session key, kAttach, {}, client nonce, session)
//
// The session key is the pre-shared key of all connections of one session. The worker gets no other
// key, so it cannot open another session of the lease. The attach key tags the Attach and Accept
// messages inside, as it does without TLS. Any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "protocol/auth/proof.h"

namespace gpurun::protocol {

struct SessionIdentity {
  Id lease{};
  Id ticket{};
  Id session{};             // Minted by the client. Never reused.
  std::uint16_t index = 0;  // Which connection: 0 is the log. Below count.
  std::uint16_t count = 0;  // 2 to limits::kConnectionsMax.
};

Bytes encode_identity(const SessionIdentity& identity);
// Nothing: another kind of name, or out of bounds.
std::optional<SessionIdentity> decode_identity(ByteView bytes);

Key tls_session_key(const Key& ticket_key, const Nonce& challenge, const Id& session);
Key attach_key_inside(const Key& tls_session_key, const Nonce& client, const Id& session);

}  // namespace gpurun::protocol
