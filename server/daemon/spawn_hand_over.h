// What passes from gpurund to a worker over a socket pair: the connections, one key and what
// the client said of itself. Nothing of
// it is on a command line, in the environment, or in a file.
#pragma once

#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/proof.h"

namespace gpurun::server {

// The worker's end of the pair, as it finds it when it starts.
inline constexpr int kHandOverFd = 3;

struct HandOver {
  protocol::Id session{};
  protocol::Key key{};
  Sha256Digest rows{};                // Digest of the client's table.
  std::vector<UniqueFd> connections;  // The log, then the bulk lanes; at least 2.
};

// Sends over `socket` (SOCK_SEQPACKET); never waits. `connections` stay the caller's.
Status send_hand_over(int socket, const protocol::Id& session, const protocol::Key& key,
                      const Sha256Digest& rows, const std::vector<int>& connections);
// Waits for it at most until gpurund dies. kProtocol: it is none.
Result<HandOver> receive_hand_over(int socket);

}  // namespace gpurun::server
