// open_session_connections(): over TCP all connections open at once, which costs one round trip.
#include "client/attach/session_connections.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/unique_fd.h"
#include "client/process/thread.h"
#include "transport/tls/library.h"

namespace gpurun::client {
namespace {

using Connections = std::vector<OpenedConnection>;

// One connection to be made, and its result.
struct Opening {
  AttachConnection one;
  std::optional<Result<OpenedConnection>> connection;
  std::unique_ptr<Thread> thread;
};
using Openings = std::vector<std::unique_ptr<Opening>>;

// A descriptor table that threads share grows only after a grace period of the kernel. Most
// programs have no thread yet, and then the table grows without that wait.
void make_room_for_descriptors(int fd_min) {
  const UniqueFd any(eventfd(0, EFD_CLOEXEC));
  const UniqueFd high(any.valid() ? fcntl(any.get(), F_DUPFD_CLOEXEC, fd_min) : -1);
}

Openings openings_of(const AttachConnection& like) {
  Openings openings;
  for (std::uint16_t index = 0; index < like.words.count; ++index) {
    openings.push_back(std::make_unique<Opening>(Opening{like, std::nullopt, {}}));
    openings.back()->one.words.index = index;
  }
  return openings;
}

// Opens each connection on a thread of its own, except the first. If they are encrypted, the first
// has a thread as well, and this thread starts OpenSSL. The result has the order of `openings`.
Result<Connections> open_at_once(const AttachConnection& like) {
  Openings openings = openings_of(like);
  const auto open_one = [](void* argument) -> void* {
    auto* opening = static_cast<Opening*>(argument);
    opening->connection.emplace(open_attach_connection(opening->one));
    return nullptr;
  };
  Status failure;
  const bool encrypted = like.tls_key.has_value();
  for (std::size_t i = encrypted ? 0 : 1; i < openings.size() && failure.ok(); ++i) {
    openings[i]->thread = std::make_unique<Thread>();
    failure = openings[i]->thread->start("gpurun-attach", open_one, openings[i].get());
  }
  // A failure here is reported by the connections that need the context.
  if (encrypted) static_cast<void>(transport::tls::client_context(transport::tls::AuthMode::kKey));
  if (failure.ok() && !encrypted) open_one(openings[0].get());
  Connections connections;
  for (const auto& opening : openings) {
    if (opening->thread != nullptr && opening->thread->started()) opening->thread->join();
    if (!opening->connection.has_value()) continue;  // `failure` has the reason.
    if (!opening->connection->ok() && failure.ok()) failure = opening->connection->status();
    if (opening->connection->ok()) connections.push_back(*std::move(*opening->connection));
  }
  if (!failure.ok()) return failure;
  return connections;
}

// Opens one after another, because nothing waits within a machine. kUnavailable is for the first
// one only: the name leads nowhere, or does not accept by `door`. The server has then received
// nothing.
Result<Connections> open_in_turn(const AttachConnection& like, Deadline door) {
  Connections connections;
  for (const auto& opening : openings_of(like)) {
    if (connections.empty()) opening->one.connected = door;
    Result<OpenedConnection> opened = open_attach_connection(opening->one);
    if (!opened.ok()) {
      const bool nowhere = connections.empty() || opened.status().code() != Code::kUnavailable;
      return nowhere ? opened.status() : Status(Code::kPeerGone, opened.status().message());
    }
    connections.push_back(*std::move(opened));
  }
  return connections;
}

std::string why_not_local(const SessionData& session) {
  if (session.encrypted) return "the session is encrypted";
  if (session.local.empty()) return "the server offers none, or is reached through something else";
  return {};
}

Result<SessionConnections> open_locally(const SessionData& session, const AttachConnection& like,
                                        Deadline door) {
  SessionConnections made{{}, like, {}, "a local socket, not encrypted"};
  made.like.local = session.local;
  Result<Connections> opened = open_in_turn(made.like, door);
  if (!opened.ok()) return opened.status();
  made.all = *std::move(opened);
  const OpenedConnection& log = made.all.front();
  made.transport = log.memory.is_there() ? "shared memory, not encrypted" : made.socket_transport;
  made.why_no_memory = log.why_no_memory;
  return made;
}

Result<SessionConnections> open_by_tcp(const AttachConnection& like, const std::string& why_none) {
  Result<Connections> opened = open_at_once(like);
  if (!opened.ok()) return opened.status();
  const std::string tcp = like.tls_key ? "TCP, encrypted by TLS" : "TCP, not encrypted";
  SessionConnections made{*std::move(opened), like, tcp, tcp};
  made.why_no_memory = why_none;
  return made;
}

}  // namespace

FabricUse fabric_use(const std::vector<TransportKind>& transports) {
  const auto place = [&](TransportKind kind) {
    return std::find(transports.begin(), transports.end(), kind);
  };
  const auto rdma = place(TransportKind::kRdma);
  const auto tcp = place(TransportKind::kTcp);
  if (rdma == transports.end() || tcp < rdma) return FabricUse::kNo;
  return tcp == transports.end() ? FabricUse::kMust : FabricUse::kMay;
}

Result<SessionConnections> open_session_connections(const SessionData& session,
                                                    const std::vector<TransportKind>& transports,
                                                    const AttachConnection& like,
                                                    std::chrono::milliseconds door_patience) {
  make_room_for_descriptors(like.fd_min);
  std::string why_none;
  Status by_tcp;
  for (const TransportKind kind : transports) {
    if (kind != TransportKind::kSharedMemory) {
      if (!by_tcp.ok()) continue;
      Result<SessionConnections> made = open_by_tcp(like, why_none);
      if (made.ok()) made->fabric = fabric_use(transports);
      if (made.ok() || made.status().code() != Code::kUnavailable) return made;
      by_tcp = made.status();
      continue;
    }
    why_none = why_not_local(session);
    if (!why_none.empty()) continue;
    const bool alone = kind == transports.back();
    const Deadline door = Deadline::in(
        std::min<std::chrono::nanoseconds>(door_patience, like.connected.remaining() / 2));
    Result<SessionConnections> made = open_locally(session, like, alone ? like.connected : door);
    if (made.ok() || made.status().code() != Code::kUnavailable) return made;
    why_none =
        "the server is not on this machine, or out of reach here: " + made.status().message();
  }
  if (!by_tcp.ok()) return by_tcp;
  return Status(Code::kUnavailable,
                "server " + like.server + ": " + kTransportsVariable +
                    " allows shared memory only, which is not available: " + why_none);
}

}  // namespace gpurun::client
