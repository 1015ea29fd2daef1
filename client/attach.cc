// The client's half of the attach: every connection's first frame is proved already, because the
// ticket carries the server's challenge; so attaching costs one round trip and the worker's start.
#include "client/attach.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "client/attach_connection.h"
#include "client/death_board.h"
#include "client/late_attach.h"
#include "client/thread.h"
#include "protocol/control.h"
#include "protocol/rows_agreement.h"
#include "protocol/session_identity.h"
#include "transport/tls/library.h"
#include "transport/transport.h"

namespace gpurun::client {
namespace {

using protocol::ControlFrame;
using protocol::ControlMessage;
using Connections = std::vector<std::unique_ptr<transport::Connection>>;

// What all connections of one session say, but for `index`.
Result<protocol::Attach> first_words(const SessionData& session, const AttachOptions& options,
                                     unsigned connections) {
  Result<protocol::Id> id = protocol::random_array<protocol::Id>();
  if (!id.ok()) return id.status();
  Result<protocol::Nonce> nonce = protocol::random_array<protocol::Nonce>();
  if (!nonce.ok()) return nonce.status();
  protocol::Attach attach;
  attach.version = protocol::our_version(protocol::Sender::kClient);
  attach.version.features = options.features;
  attach.rows = protocol::known_rows_digest(options.rows);
  attach.lease = session.lease;
  attach.ticket = session.ticket;
  attach.session = *id;
  attach.nonce = *nonce;
  attach.count = static_cast<std::uint16_t>(connections);
  return attach;
}

// One connection to be made, and what came of it.
struct Opening {
  AttachConnection one;
  std::optional<Result<std::unique_ptr<transport::Connection>>> connection;
  std::unique_ptr<Thread> thread;
};
using Openings = std::vector<std::unique_ptr<Opening>>;

// A table of descriptors that threads share grows only behind a grace period of the kernel's, which
// takes 4 to 15 ms. Most programs have no thread yet: then it grows for nothing.
void make_room_for_descriptors(int fd_min) {
  const UniqueFd any(eventfd(0, EFD_CLOEXEC));
  const UniqueFd high(any.valid() ? fcntl(any.get(), F_DUPFD_CLOEXEC, fd_min) : -1);
}

// All at once, each on a thread of its own but the first: their connects cost one round trip
// together. Encrypted, all of them: this one starts OpenSSL meanwhile. In the order of `openings`.
Result<Connections> open_all(Openings& openings) {
  const auto open_one = [](void* argument) -> void* {
    auto* opening = static_cast<Opening*>(argument);
    opening->connection.emplace(open_attach_connection(opening->one));
    return nullptr;
  };
  Status failure;
  const bool encrypted = openings[0]->one.tls_key.has_value();
  for (std::size_t i = encrypted ? 0 : 1; i < openings.size() && failure.ok(); ++i) {
    openings[i]->thread = std::make_unique<Thread>();
    failure = openings[i]->thread->start("gpurun-attach", open_one, openings[i].get());
  }
  // Who needs it says why not.
  if (encrypted) static_cast<void>(transport::tls::client_context(transport::tls::KnownBy::kKey));
  if (failure.ok() && !encrypted) open_one(openings[0].get());
  Connections connections;
  for (const auto& opening : openings) {
    if (opening->thread != nullptr && opening->thread->started()) opening->thread->join();
    if (!opening->connection.has_value()) continue;  // `failure` says why.
    if (!opening->connection->ok() && failure.ok()) failure = opening->connection->status();
    if (opening->connection->ok()) connections.push_back(*std::move(*opening->connection));
  }
  if (!failure.ok()) return failure;
  return connections;
}

Result<protocol::Accept> receive_accept(transport::Connection& log, const protocol::Key& key,
                                        const std::string& server, Deadline deadline,
                                        std::chrono::milliseconds patience) {
  const Result<ControlFrame> frame =
      protocol::receive_control(log, limits::kFrameBytesMax, deadline);
  if (frame.status().code() == Code::kDeadline) {
    return not_answered(server, patience);
  }
  if (!frame.ok()) return frame.status();
  Result<ControlMessage> message = protocol::decode(frame->payload);
  if (!message.ok()) return message.status();
  // Without a tag when the server no longer knows the lease, and so has no key either.
  if (const auto* refused = std::get_if<protocol::Refused>(&*message)) {
    return Status(Code::kRefused, "server " + server + ": " + refused->reason);
  }
  if (!protocol::proved(*frame, key, protocol::Sender::kServer, 0)) {
    return Status(Code::kProtocol, "server " + server + " does not know our ticket");
  }
  auto* accept = std::get_if<protocol::Accept>(&*message);
  if (accept == nullptr) {
    return Status(Code::kProtocol, "server " + server + " gave an answer that does not fit");
  }
  return std::move(*accept);
}

// With how the worker died, or the server ended, if that is the reason and gpurun hears of it.
Status explained(const Status& status, const AttachOptions& options, const protocol::Id& session) {
  const bool ended = status.code() == Code::kPeerGone || status.code() == Code::kUnavailable;
  if (options.deaths == nullptr || !ended) return status;
  const std::string how = options.deaths->ask(session, kNewsPatience);
  return how.empty() ? status : Status(Code::kPeerGone, how);
}

}  // namespace

Result<Attached> attach(const SessionData& session, const AttachOptions& options) {
  const unsigned count = options.bulk_connections + 1;
  if (session.servers.empty() || count < 2 || count > protocol::kConnectionsMax) {
    return Status(Code::kInvalidArgument, "attach: no server, or no such number of connections");
  }
  const std::string& server = session.servers.front();
  const Deadline deadline = Deadline::in(options.deadline);
  const Deadline connected = Deadline::in(std::min(options.connect_deadline, options.deadline));
  Result<protocol::Attach> words = first_words(session, options, count);
  if (!words.ok()) return words.status();
  const protocol::Key session_key =
      protocol::tls_session_key(session.ticket_key, session.challenge, words->session);
  const protocol::Key key =
      session.encrypted ? protocol::attach_key_inside(session_key, words->nonce, words->session)
                        : protocol::link_key(bytes_of(session.ticket_key), protocol::Link::kAttach,
                                             session.challenge, words->nonce, words->session);
  const AttachConnection first{server,
                               *words,
                               key,
                               session.encrypted ? std::optional(session_key) : std::nullopt,
                               options.fd_min,
                               connected,
                               deadline,
                               options.deadline};
  Openings openings;
  for (unsigned index = 0; index < count; ++index) {
    openings.push_back(std::make_unique<Opening>(Opening{first, std::nullopt, {}}));
    openings.back()->one.words.index = static_cast<std::uint16_t>(index);
  }
  make_room_for_descriptors(options.fd_min);
  Result<Connections> opened = open_all(openings);
  if (!opened.ok()) return explained(opened.status(), options, words->session);
  Connections connections = *std::move(opened);
  Result<protocol::Accept> accept =
      receive_accept(*connections[0], key, server, deadline, options.deadline);
  if (!accept.ok()) return explained(accept.status(), options, words->session);
  const auto no = [&server](const Status& why) {
    return Status(why.code(), "server " + server + ": " + why.message());
  };
  const Result<std::uint64_t> features = protocol::agree_on_features(
      options.features, protocol::kRelease, accept->features, accept->release, "server");
  if (!features.ok()) return no(features.status());
  Result<std::vector<std::uint16_t>> lacking =
      protocol::rows_lacking(options.rows, accept->rows, protocol::kRelease, accept->release);
  if (!lacking.ok()) return no(lacking.status());

  Attached attached;
  attached.channels.log = std::move(connections[0]);
  for (unsigned index = 1; index < count; ++index) {
    attached.channels.bulk.push_back(std::move(connections[index]));
  }
  attached.channels.server_name = server;
  attached.channels.deaths = options.deaths;
  attached.channels.id = words->session;
  attached.snapshot = std::move(accept->snapshot);
  attached.driver_version = accept->driver_version;
  attached.server_release = std::move(accept->release);
  attached.lacking = *std::move(lacking);
  attached.features = *features;
  if (options.more_later &&
      (*features & protocol::feature_bit(protocol::Feature::kLateBulk)) != 0) {
    attached.channels.more = std::make_unique<LateAttach>(first);
  }
  if ((*features & protocol::feature_bit(protocol::Feature::kFirstCredits)) != 0) {
    attached.credits = accept->credits;
  }
  // The connects; with TLS its handshakes; the worker's answer.
  attached.round_trips = session.encrypted ? 3 : 2;
  return attached;
}

}  // namespace gpurun::client
