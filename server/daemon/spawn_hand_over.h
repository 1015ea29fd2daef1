// What passes from gpurund to a worker over a socket pair: the connections, one key and what the
// client said of itself. Nothing of it is on a command line, in the environment, or in a file.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/features.h"
#include "protocol/proof.h"
#include "server/daemon/spawn.h"

namespace gpurun::server {

// The worker's end of the pair, as it finds it when it starts.
inline constexpr int kHandOverFd = 3;

struct HandOver {
  protocol::Id session{};
  protocol::Key key{};
  Sha256Digest rows{};          // Digest of the client's table.
  protocol::Features features;  // What the client offers and requires.
  // The client says rows and features inside TLS, for which `key` is the pre-shared key.
  bool encrypted = false;
  protocol::Id lease{};
  protocol::Id ticket{};
  std::string images;                 // Its user's part of the folder of images (spawn.h).
  std::vector<UniqueFd> connections;  // The log, then the bulk lanes; at least 2.
};

// Sends over `socket` (SOCK_SEQPACKET); never waits. `connections` are the descriptors of
// the order's connections, and stay the caller's.
Status send_hand_over(int socket, const WorkerOrder& order, const std::vector<int>& connections);
// Waits for it at most until gpurund dies (kPeerGone). kProtocol: it is none.
Result<HandOver> receive_hand_over(int socket);

}  // namespace gpurun::server
