// attach(): the first frame of each connection already carries its proof, because the ticket
// contains the server's challenge. An attach therefore costs one round trip and the worker's start.
#include "client/attach/attach.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "client/attach/attach_connection.h"
#include "client/attach/extra_bulk_attach.h"
#include "client/attach/fabric_attach.h"
#include "client/attach/host_memory_attach.h"
#include "client/attach/session_connections.h"
#include "client/session/worker_exit_page.h"
#include "protocol/control/control.h"
#include "protocol/control/rows_agreement.h"
#include "protocol/control/session_identity.h"
#include "transport/transport.h"

namespace gpurun::client {
namespace {

using protocol::ControlFrame;
using protocol::ControlMessage;

// The words of a session that may not go over RDMA do not offer it.
std::uint64_t without_fabric(std::uint64_t offered, const AttachOptions& options) {
  constexpr std::uint64_t kFabric = protocol::feature_bit(protocol::Feature::kFabric);
  const bool offers =
      fabric_use(options.transports) != FabricUse::kNo && !options.fabrics.trusted.empty();
  return offers ? offered | kFabric : offered & ~kFabric;
}

// The words of all connections of one session, except for `index`.
Result<protocol::Attach> first_words(const SessionData& session, const AttachOptions& options,
                                     unsigned connections) {
  Result<protocol::Id> id = random_array<protocol::Id>();
  if (!id.ok()) return id.status();
  Result<protocol::Nonce> nonce = random_array<protocol::Nonce>();
  if (!nonce.ok()) return nonce.status();
  protocol::Attach attach;
  attach.version = protocol::our_version(protocol::Sender::kClient);
  attach.version.features = options.features;
  attach.version.features.offered = without_fabric(options.features.offered, options);
  attach.rows = protocol::known_rows_digest(options.rows);
  attach.lease = session.lease;
  attach.ticket = session.ticket;
  attach.session = *id;
  attach.nonce = *nonce;
  attach.count = static_cast<std::uint16_t>(connections);
  return attach;
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
  // The answer has no tag when the server no longer knows the lease, because then it has no key.
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

// Adds how the worker died or the server ended, if gpurun reports that.
Status explained(const Status& status, const AttachOptions& options, const protocol::Id& session) {
  const bool ended = status.code() == Code::kPeerGone || status.code() == Code::kUnavailable;
  if (options.deaths == nullptr || !ended) return status;
  const std::string how = options.deaths->ask(session, kNewsPatience);
  return how.empty() ? status : Status(Code::kPeerGone, how);
}

void add_late_connections(const SessionConnections& opened, const AttachOptions& options,
                          std::uint64_t features, bool shares_memory, Session::Channels* channels) {
  const auto knows = [features](protocol::Feature feature) {
    return (features & protocol::feature_bit(feature)) != 0;
  };
  if (!knows(protocol::Feature::kLateBulk)) return;
  const auto late = std::make_shared<LateAttach>(opened.like);
  // A late connection is one of TCP. One queue pair fills the fabric.
  if (options.more_later && !opened.all_over_fabric)
    channels->more = std::make_unique<ExtraBulkAttach>(late);
  if (shares_memory && late->is_local() && knows(protocol::Feature::kHostArena)) {
    channels->host_memory = std::make_unique<HostMemoryAttach>(late);
  }
}

// Adds the reasons against the fabric, one for each port and one for the whole.
void add_rejected_ports(const FabricAttach& fabric, std::vector<transport::Rejected>* rejected) {
  for (const transport::Rejected& port : fabric.rejected) {
    rejected->push_back({"RDMA by " + port.name, port.reason});
  }
  const std::string& why = fabric.agreement.why_none;
  const bool repeats = !fabric.rejected.empty() &&
                       why == fabric.rejected.front().name + ": " + fabric.rejected.front().reason;
  if (!why.empty() && !repeats) rejected->push_back({"RDMA", why});
}

// The pairs of ports: one where all connections have the same, and otherwise each of them once.
std::string ports_text(const FabricAttach& fabric) {
  std::vector<std::string> copies;
  for (const std::string& each : fabric.bulk_ports) {
    if (std::find(copies.begin(), copies.end(), each) == copies.end()) copies.push_back(each);
  }
  const std::string& calls = fabric.agreement.ports;
  if (copies.empty() || (copies.size() == 1 && copies.front() == calls)) return calls;
  std::string text = calls + " for calls, and by ";
  for (const std::string& each : copies) text += (&each == &copies.front() ? "" : " and ") + each;
  return text + " for copies";
}

// Goes on over RDMA where both sides consent. Adds the reasons against the transports that would
// have come first. kUnavailable: RDMA was all that the user allows.
Status choose_carrier(SessionConnections& opened, const AttachOptions& options,
                      std::uint64_t features, Deadline deadline,
                      std::vector<transport::Rejected>* rejected) {
  if (!opened.why_no_memory.empty()) {
    rejected->push_back({"shared memory", opened.why_no_memory});
  }
  if (opened.fabric == FabricUse::kNo) return {};
  FabricAttach fabric;
  std::string& why = fabric.agreement.why_none;
  if (options.fabrics.trusted.empty()) {
    why = kNoFabricTrusted;
  } else if ((features & protocol::feature_bit(protocol::Feature::kFabric)) == 0) {
    why = "the server trusts no fabric, or its gpurund is older";
  } else {
    Result<FabricAttach> went =
        go_over_fabric(opened.all, options.fabrics, {options.fd_min, options.forks}, deadline);
    if (!went.ok()) return went.status();
    fabric = *std::move(went);
  }
  const std::string& bulk = fabric.why_bulk_does_not;
  opened.all_over_fabric = why.empty() && bulk.empty();
  if (opened.fabric == FabricUse::kMust && !opened.all_over_fabric) {
    return Status(Code::kUnavailable, std::string(kTransportsVariable) +
                                          " allows RDMA only, which is not available: " + why +
                                          bulk);
  }
  if (why.empty()) {
    opened.transport = "RDMA by " + ports_text(fabric) + ", payload not encrypted";
  }
  add_rejected_ports(fabric, rejected);
  if (!bulk.empty()) rejected->push_back({"RDMA with large copies", bulk});
  return {};
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
                               {},
                               session.broker,
                               *words,
                               key,
                               session.encrypted ? std::optional(session_key) : std::nullopt,
                               options.fd_min,
                               -1,
                               connected,
                               deadline,
                               options.deadline};
  Result<SessionConnections> opened =
      open_session_connections(session, options.transports, first, options.door_patience);
  if (!opened.ok()) return explained(opened.status(), options, words->session);
  Result<protocol::Accept> accept =
      receive_accept(*opened->all[0].connection, key, server, deadline, options.deadline);
  if (!accept.ok()) return explained(accept.status(), options, words->session);
  const auto no = [&server](const Status& why) {
    return Status(why.code(), "server " + server + ": " + why.message());
  };
  const Result<std::uint64_t> features = protocol::agree_on_features(
      words->version.features, protocol::kRelease, accept->features, accept->release, "server");
  if (!features.ok()) return no(features.status());
  Result<std::vector<std::uint16_t>> lacking =
      protocol::rows_lacking(options.rows, accept->rows, protocol::kRelease, accept->release);
  if (!lacking.ok()) return no(lacking.status());

  Attached attached;
  const Status chosen = choose_carrier(*opened, options, *features, deadline, &attached.rejected);
  if (!chosen.ok()) return no(chosen);
  const bool shares = opened->all[0].memory.is_there();
  opened->like.may_change =
      (*features & protocol::feature_bit(protocol::Feature::kCarrierChanges)) != 0;
  for (OpenedConnection& each : opened->all) {
    auto connection = std::move(each).carry_calls(opened->like.may_change);
    if (!connection.ok()) return connection.status();
    if (attached.channels.log == nullptr) {
      attached.channels.log = *std::move(connection);
    } else {
      attached.channels.bulk.push_back(*std::move(connection));
    }
  }
  attached.transport = opened->transport;
  attached.socket_transport = opened->socket_transport;
  attached.channels.server_name = server;
  attached.channels.deaths = options.deaths;
  attached.channels.id = words->session;
  attached.channels.descriptor_min = options.fd_min;
  attached.snapshot = std::move(accept->snapshot);
  attached.driver_version = accept->driver_version;
  attached.server_release = std::move(accept->release);
  attached.lacking = *std::move(lacking);
  attached.unserved = std::move(accept->unserved);
  attached.features = *features;
  add_late_connections(*opened, options, *features, shares, &attached.channels);
  attached.channels.mirrors_host_memory =
      (*features & protocol::feature_bit(protocol::Feature::kHostMirror)) != 0;
  if ((*features & protocol::feature_bit(protocol::Feature::kFirstCredits)) != 0) {
    attached.credits = accept->credits;
  }
  // The connects, the TLS handshakes, and the worker's answer.
  attached.round_trips = session.encrypted ? 3 : 2;
  return attached;
}

}  // namespace gpurun::client
