// attach(): from a ticket to connections over which a worker answers.
//
// Connects once for the log and once for each bulk connection, proves the ticket on each, and waits
// for the worker's proof. The result goes to Session::start() and DeviceSnapshot::parse().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/attach/session_data.h"
#include "client/attach/transports.h"
#include "client/session/session.h"
#include "driver_abi/row.h"
#include "protocol/calls/device_memory.h"
#include "protocol/control/features.h"
#include "protocol/control/version.h"
#include "protocol/limits.h"
#include "transport/rdma/allowed_ports.h"
#include "transport/rdma/descriptors.h"
#include "transport/rejected.h"

namespace gpurun::client {

class WorkerExitPage;

struct AttachOptions {
  unsigned bulk_connections = 1;  // 1 to protocol::kConnectionsMax - 1.
  // More connections may join later (Channels::more), if the server accepts them.
  bool more_later = false;
  // The allowed transports, best first (client/attach/transports.h).
  std::vector<TransportKind> transports = all_transports();
  // The fabrics that the user trusts. Empty: no session goes over RDMA.
  transport::rdma::AllowedPorts fabrics = {};
  // The lowest number for our descriptors in the program's process. See transport::Options.
  int fd_min = 0;
  // How forked children lose the descriptors of RDMA. nullptr: they keep them.
  const transport::rdma::ForkHooks* forks = nullptr;
  // Where to ask how a worker died when its connection ends. nullptr: nowhere.
  WorkerExitPage* deaths = nullptr;
  // The rows that this client calls. Tests pass another table.
  std::span<const driver_abi::Row> rows = driver_abi::rows();
  // The features that this client offers and requires (protocol/control/features.h). Tests pass
  // others.
  protocol::Features features = protocol::our_features(protocol::Sender::kClient);
  // The time for each connection to open.
  std::chrono::milliseconds connect_deadline = std::chrono::seconds(limits::kHandshakeDeadlineS);
  // The time for the server's local socket to accept the first connection, if TCP is also allowed.
  std::chrono::milliseconds door_patience = std::chrono::seconds(1);
  // The total time, for the connections, the daemon's part, and the start of the worker with its
  // driver. It equals the time that gpurund itself waits for that driver. Many GPUs without
  // NVIDIA's persistence daemon take tens of seconds, and the worker sends no sign of life in the
  // meantime.
  std::chrono::milliseconds deadline{60'000};
};

struct Attached {
  Session::Channels channels;
  Bytes snapshot;              // A wire::Snapshot: for DeviceSnapshot::parse().
  int driver_version = 0;      // cuDriverGetVersion of the server's driver.
  std::string server_release;  // gpurun's version on the server.
  // The protocol::Feature bits that both ends offer.
  std::uint64_t features = 0;
  // The first memory of the session's one device.
  std::optional<protocol::CreditGrant> credits;
  // Opcodes of our rows that the server does not know, in ascending order
  // (protocol/control/rows_agreement.h).
  std::vector<std::uint16_t> lacking;
  // Opcodes of rows that the server knows and its driver cannot serve, in ascending order.
  std::vector<std::uint16_t> unserved;
  // One for the connects, one for the TLS handshakes if there are any, one for the worker's answer.
  unsigned round_trips = 0;
  // The transport, for people: "TCP, not encrypted", "RDMA by mlx5_0:1 to mlx5_0:1, payload not
  // encrypted".
  std::string transport;
  // That of connections which leave it later: "TCP, encrypted by TLS".
  std::string socket_transport;
  // The transports and ports that would have come first.
  std::vector<transport::Rejected> rejected;
};

//   kUnavailable  nothing listens there, or no allowed transport leads there.
//   kRefused      the server refused: the lease is over, the versions differ, or its driver does
//                 not start. Or the client refused: a row of the two tables differs, or a required
//                 feature is missing.
//   kProtocol     the peer is not our gpurund, or it does not know the ticket.
//   kDeadline     nothing accepts the connection, or the worker does not answer.
//   kPeerGone     the connection ended.
Result<Attached> attach(const SessionData& session, const AttachOptions& options);

}  // namespace gpurun::client
