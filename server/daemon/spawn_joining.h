// What passes from gpurund to a worker that has its session, over the same socket pair as the
// hand-over: one more bulk connection each time, with what proves the worker's answer.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/proof.h"

namespace gpurun::server {

struct Joining {
  std::uint16_t index = 0;  // 2 to kConnectionsMax - 1: the session began with at least two.
  protocol::Key key{};      // The attach key; zeros where the session is encrypted.
};

// Never waits. `connection` stays the caller's.
Status send_joining(int socket, const Joining& joining, int connection);
// Waits for the next until gpurund dies or the socket is shut down (kPeerGone). kProtocol: it is
// none.
Result<Joining> receive_joining(int socket, UniqueFd* connection);

}  // namespace gpurun::server
