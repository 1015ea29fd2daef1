// Joining: what gpurund sends to a worker with a session, over the socket pair of the hand-over.
// Each message has one more bulk connection, and the key that proves the worker's answer.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/auth/proof.h"

namespace gpurun::server {

struct Joining {
  std::uint16_t index = 0;  // 2 to kConnectionsMax - 1: the session began with at least two.
  protocol::Key key{};      // The attach key. Zeros when the session is encrypted.
};

// Never waits. `connection` still belongs to the caller.
Status send_joining(int socket, const Joining& joining, int connection);
// Waits for the next message, until gpurund dies or the socket is shut down (kPeerGone). kProtocol:
// not such a message.
Result<Joining> receive_joining(int socket, UniqueFd* connection);

}  // namespace gpurun::server
