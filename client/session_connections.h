// The connections with which a session begins: which transport leads to the server, and all of them
// opened over it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/attach_connection.h"
#include "client/session_data.h"
#include "client/transports.h"

namespace gpurun::client {

struct SessionConnections {
  std::vector<OpenedConnection> all;  // By their index; not empty.
  AttachConnection like;              // How they were opened: others may follow.
  std::string transport;              // For people: "TCP, not encrypted (no shared memory: ...)".
};

// Opens `like.words.count` connections as `like` says but for its index, over the first of
// `transports` that leads there. A local socket that has not let the first one in within
// `door_patience`, or half of the time to connect, does not, where another way follows.
// kUnavailable: none does, or nothing listens; others as of attach().
Result<SessionConnections> open_session_connections(const SessionData& session,
                                                    const std::vector<TransportKind>& transports,
                                                    const AttachConnection& like,
                                                    std::chrono::milliseconds door_patience);

}  // namespace gpurun::client
