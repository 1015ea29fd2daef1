// WorkerOrder: what the daemon has gathered of a session, for the worker that will serve it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/sha256.h"
#include "protocol/auth/proof.h"
#include "protocol/control/features.h"
#include "server/handover/user.h"
#include "transport/transport.h"

namespace gpurun::server {

// A session of which all connections have come and are proved.
struct WorkerOrder {
  User user;
  protocol::Id session{};
  // The attach key, which tags the worker's answer. For an encrypted session the pre-shared key of
  // its handshakes (protocol/control/session_identity.h).
  protocol::Key key{};
  Sha256Digest rows{};  // protocol::rows_digest() of the client's table. Unknown when encrypted.
  // What the client offers and requires. Unknown when encrypted.
  protocol::Features features;
  bool encrypted = false;
  protocol::Id lease{};
  protocol::Id ticket{};
  std::vector<int> devices;  // The driver's ordinals.
  // The log, then the bulk connections. Exactly the first frame of each has been read, and of
  // encrypted ones nothing.
  std::vector<std::unique_ptr<transport::Connection>> connections;
};

// A proved bulk connection that joins a session with a running worker.
struct ExtraBulkConnection {
  protocol::Id lease{};
  protocol::Id session{};
  std::uint16_t index = 0;
  // The attach key. Unused for an encrypted session, because its worker has what it needs.
  protocol::Key key{};
  bool encrypted = false;
  std::unique_ptr<transport::Connection> connection;  // As in WorkerOrder.
};

}  // namespace gpurun::server
