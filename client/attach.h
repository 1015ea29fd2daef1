// Attach: from a ticket to connections over which a worker answers.
//
// Connects once for the log and once for each bulk lane, proves the ticket on each, and waits for
// the worker's proof. What it returns goes to Session::start() and DeviceSnapshot::parse().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/session.h"
#include "client/session_data.h"
#include "client/transports.h"
#include "driver_abi/row.h"
#include "protocol/device_memory.h"
#include "protocol/features.h"
#include "protocol/limits.h"

namespace gpurun::client {

class DeathBoard;

struct AttachOptions {
  unsigned bulk_connections = 1;  // 1 to protocol::kConnectionsMax - 1.
  // Others may join them later (Channels::more), where the server takes them.
  bool more_later = false;
  // Over what, best first (client/transports.h).
  std::vector<TransportKind> transports = all_transports();
  // Descriptors of ours in a stranger's process; see transport::Options.
  int fd_min = 0;
  // Where it is asked how a worker died that was heard of no more; nullptr: nowhere.
  DeathBoard* deaths = nullptr;
  // What we call; another table is for tests.
  std::span<const driver_abi::Row> rows = driver_abi::rows();
  // What we offer and require (protocol/features.h); others are for tests.
  protocol::Features features = protocol::our_features(protocol::Sender::kClient);
  // For each connection to be made.
  std::chrono::milliseconds connect_deadline = std::chrono::seconds(limits::kHandshakeDeadlineS);
  // At the server's local socket, until it lets the first connection in, where there is TCP to go
  // to instead.
  std::chrono::milliseconds door_patience = std::chrono::seconds(1);
  // That, the daemon's part and the start of the worker with its driver, together. As long as
  // gpurund itself waits for that driver when it starts: many GPUs without NVIDIA's persistence
  // daemon take tens of seconds, and nothing says meanwhile that the worker lives.
  std::chrono::milliseconds deadline{60'000};
};

struct Attached {
  Session::Channels channels;
  Bytes snapshot;              // A wire::Snapshot: for DeviceSnapshot::parse().
  int driver_version = 0;      // cuDriverGetVersion of the server's driver.
  std::string server_release;  // gpurun's version on the server.
  // protocol::Feature bits that both ends offer.
  std::uint64_t features = 0;
  // First memory of the session's one device.
  std::optional<protocol::CreditGrant> credits;
  // Opcodes of our rows that the server does not know, ascending (protocol/rows_agreement.h).
  std::vector<std::uint16_t> lacking;
  // Opcodes of rows that the server knows and its driver cannot serve, ascending.
  std::vector<std::uint16_t> unserved;
  // One for the connects, with TLS one for its handshakes, one for the worker's answer.
  unsigned round_trips = 0;
  // What the connections go over, for people: "TCP, not encrypted (no shared memory: ...)".
  std::string transport;
};

//   kUnavailable  nothing listens there, or no transport that is allowed leads there: a sentence.
//   kRefused      the server's sentence: lease over, versions differ, driver does not start.
//                 Or ours: a row of the two tables differs, a feature that one requires is missing.
//   kProtocol     what answers there is no gpurund of ours, or it does not know the ticket.
//   kDeadline     nobody accepts the connection, or nothing is heard of the worker: a sentence.
//   kPeerGone
Result<Attached> attach(const SessionData& session, const AttachOptions& options);

}  // namespace gpurun::client
