// SessionConnections: the connections with which a session begins, all over the one transport that
// leads to the server.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/attach/attach_connection.h"
#include "client/attach/session_data.h"
#include "client/attach/transports.h"

namespace gpurun::client {

// Whether the connections may, or must, go on over RDMA.
enum class FabricUse : std::uint8_t { kNo, kMay, kMust };

struct SessionConnections {
  std::vector<OpenedConnection> all;  // By index. Not empty.
  AttachConnection like;              // How they were opened, for later ones.
  std::string transport;              // For people: "TCP, not encrypted".
  std::string socket_transport;       // The same, of their sockets alone.
  std::string why_no_memory = {};     // For people: why it is not shared memory, or empty.
  FabricUse fabric = FabricUse::kNo;
  bool all_over_fabric = false;  // RDMA carries all of them.
};

// For TCP. RDMA takes the place of a connection that stands, so it must come before TCP.
FabricUse fabric_use(const std::vector<TransportKind>& transports);

// Opens `like.words.count` connections, which differ from `like` in their index only. Uses the
// first of `transports` that leads to the server. If another transport follows, a local socket must
// accept the first connection within `door_patience` and within half of the time to connect. If
// not, it counts as leading nowhere. kUnavailable: no transport leads there, or nothing listens.
// Other errors as attach().
Result<SessionConnections> open_session_connections(const SessionData& session,
                                                    const std::vector<TransportKind>& transports,
                                                    const AttachConnection& like,
                                                    std::chrono::milliseconds door_patience);

}  // namespace gpurun::client
