// Hand-over: what gpurund sends to a worker over a socket pair. It has the connections, one key and
// the client's facts. None of it is in the command line, the environment or a file.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/auth/proof.h"
#include "protocol/control/features.h"
#include "server/handover/worker_order.h"

namespace gpurun::server {

// The worker's end of the pair, as a descriptor that is open at its start.
inline constexpr int kHandOverFd = 3;

struct HandOver {
  protocol::Id session{};
  protocol::Key key{};
  Sha256Digest rows{};          // Digest of the client's table.
  protocol::Features features;  // What the client offers and requires.
  // The client sends rows and features inside TLS, and `key` is its pre-shared key.
  bool encrypted = false;
  protocol::Id lease{};
  protocol::Id ticket{};
  std::string images;                 // Its user's part of the folder of images (spawn.h).
  std::vector<UniqueFd> connections;  // The log, then the bulk connections. At least 2.
};

// Sends over `socket` (SOCK_SEQPACKET). Never waits. `connections` are the descriptors of the
// order's connections, and still belong to the caller.
Status send_hand_over(int socket, const WorkerOrder& order, const std::vector<int>& connections);
// Waits for the hand-over, at most until gpurund dies (kPeerGone). kProtocol: not a hand-over.
Result<HandOver> receive_hand_over(int socket);

}  // namespace gpurun::server
