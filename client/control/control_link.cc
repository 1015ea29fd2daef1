// ControlLink: hello, challenge, lease request and grant.
#include "client/control/control_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/random.h"
#include "protocol/control/control.h"
#include "protocol/control/local_address.h"
#include "transport/sockets/address.h"

namespace gpurun::client {
namespace {

using protocol::ControlFrame;
using protocol::ControlMessage;
using protocol::Sender;

Deadline handshake_deadline() {
  return Deadline::in(std::chrono::seconds(limits::kHandshakeDeadlineS));
}

Status refused_by(const std::string& address, const protocol::Refused& refused) {
  return Status(Code::kRefused, "server " + address + ": " + refused.reason);
}

std::string own_host() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

Status unexpected(const std::string& address) {
  return Status(Code::kProtocol, "server " + address + " gave an answer that does not fit");
}

}  // namespace

ControlLink::ControlLink(std::unique_ptr<transport::Connection> connection, std::string address)
    : connection_(std::move(connection)), address_(std::move(address)) {}

ControlLink::~ControlLink() = default;

Result<std::unique_ptr<ControlLink>> ControlLink::connect(std::string_view address, ByteView secret,
                                                          Deadline deadline,
                                                          const LinkSecurity& security) {
  return open(address, secret, nullptr, deadline, security);
}

Result<std::unique_ptr<ControlLink>> ControlLink::connect_with_token(std::string_view address,
                                                                     const protocol::Token& token,
                                                                     Deadline deadline,
                                                                     const LinkSecurity& security) {
  return open(address, bytes_of(token.secret), &token, deadline, security);
}

// With a token, `secret` is the token's.
Result<std::unique_ptr<ControlLink>> ControlLink::open(std::string_view address, ByteView secret,
                                                       const protocol::Token* token,
                                                       Deadline deadline,
                                                       const LinkSecurity& security) {
  const Result<transport::sockets::HostPort> place =
      transport::sockets::parse_host_port(address, limits::kDefaultPort);
  if (!place.ok()) return place.status();
  const std::string name = transport::sockets::format_host_port(*place);
  Result<std::unique_ptr<transport::Connection>> connection =
      transport::connect("tcp://" + name, deadline);
  if (!connection.ok()) return connection.status();
  Result<SecuredLink> secured =
      secure_link(*std::move(connection), place->host, name, security, deadline);
  if (!secured.ok()) return secured.status();
  std::unique_ptr<ControlLink> link(new ControlLink(std::move(secured->connection), name));
  link->server_key_ = secured->key;
  GPURUN_RETURN_IF_ERROR(link->greet(secret, token, secured->exporter, deadline));
  return link;
}

// Inside TLS nothing is sent yet. Both ends know the channel's exporter. The hello, and all that is
// proved by it, waits for the request. Without TLS the server's nonce comes first.
Status ControlLink::greet(ByteView secret, const protocol::Token* token,
                          const std::optional<protocol::Nonce>& exporter, Deadline deadline) {
  const Result<protocol::Nonce> ours = random_array<protocol::Nonce>();
  if (!ours.ok()) return ours.status();
  protocol::Hello hello{protocol::our_version(Sender::kClient), *ours};
  if (token != nullptr) {
    hello.token = token->id;
    hello.version.features.required |= protocol::feature_bit(protocol::Feature::kUserTokens);
  }
  protocol::Nonce theirs = exporter.value_or(protocol::Nonce{});
  if (exporter) {
    unsent_ = protocol::control_frame(protocol::encode(hello), std::nullopt);
  } else {
    GPURUN_RETURN_IF_ERROR(protocol::send_control(*connection_, hello, deadline));
    const Result<protocol::Nonce> challenge = hear_challenge(deadline);
    if (!challenge.ok()) return challenge.status();
    theirs = *challenge;
  }
  const auto kind = exporter ? protocol::Link::kControlInTls : protocol::Link::kControl;
  key_ = protocol::link_key(secret, kind, theirs, *ours, protocol::Id{});
  if (token == nullptr) return {};
  const protocol::TokenProof proof{protocol::mask_token(token->secret, theirs, *ours, token->id)};
  const Bytes frame = protocol::control_frame(protocol::encode(proof), std::nullopt);
  unsent_.insert(unsent_.end(), frame.begin(), frame.end());
  return {};
}

Result<protocol::Nonce> ControlLink::hear_challenge(Deadline deadline) {
  const Result<ControlFrame> frame =
      protocol::receive_control(*connection_, limits::kHelloBytesMax, deadline);
  if (!frame.ok()) return frame.status();
  const Result<ControlMessage> message = protocol::decode(frame->payload);
  if (!message.ok()) return message.status();
  if (const auto* refused = std::get_if<protocol::Refused>(&*message)) {
    refused_for_good_ = true;  // The server has not read the request.
    return refused_by(address_, *refused);
  }
  const auto* challenge = std::get_if<protocol::Challenge>(&*message);
  if (challenge == nullptr) return unexpected(address_);
  const Status version = protocol::check_version(challenge->version, "server");
  if (!version.ok()) {
    refused_for_good_ = true;
    return refused_by(address_, {version.message(), true});
  }
  server_release_ = challenge->version.release;
  server_is_known_ = true;
  return challenge->nonce;
}

// The request is the proof. A token's request comes right before it. All goes out at once. Inside
// TLS that is one record, which a server that refuses the hello has then read as a whole.
Status ControlLink::ask(const ControlMessage& request) {
  const Bytes payload = protocol::encode(request);
  const Bytes frame = protocol::control_frame(
      payload, protocol::frame_tag(key_, Sender::kClient, sent_++, payload));
  const ByteView parts[] = {ByteView(unsent_), ByteView(frame)};
  GPURUN_RETURN_IF_ERROR(connection_->send(parts, handshake_deadline()));
  unsent_.clear();
  if (server_is_known_) return {};
  return hear_challenge(handshake_deadline()).status();
}

// Also returns true when the deadline has passed, or the connection has ended.
bool ControlLink::answered_within(std::chrono::milliseconds span, Deadline deadline) const {
  const Deadline end = Deadline::in(span);
  while (!connection_->holds_received()) {
    const int waited = std::min(end.poll_timeout_ms(), deadline.poll_timeout_ms());
    pollfd ready = {fd(), POLLIN, 0};
    const int count = poll(&ready, 1, waited);
    if (count > 0 || (count < 0 && errno != EINTR) || deadline.passed()) return true;
    if (end.passed()) return false;
  }
  return true;
}

Result<SessionData> ControlLink::request_lease(const LeaseRequest& request) {
  const protocol::LeaseRequest message{request.devices,
                                       static_cast<std::uint64_t>(request.wait.count()), own_host(),
                                       request.program, static_cast<std::uint32_t>(getpid())};
  GPURUN_RETURN_IF_ERROR(ask(message));
  // The server answers when its wait ends, at the latest. After that it has time to send the
  // answer.
  const Deadline deadline =
      Deadline::in(request.wait + std::chrono::seconds(limits::kHandshakeDeadlineS));
  std::optional<protocol::Queued> place;
  while (true) {
    const bool reminds = place && request.on_queued && request.remind_every.count() > 0;
    if (reminds && !answered_within(request.remind_every, deadline)) {
      request.on_queued(*place, true);
      continue;
    }
    Result<ControlFrame> frame =
        protocol::receive_control(*connection_, limits::kHelloBytesMax, deadline);
    if (!frame.ok()) return frame.status();
    const Result<ControlMessage> answer = protocol::decode(frame->payload);
    if (!answer.ok()) return answer.status();
    // A server that knows another secret cannot tag its refusal in a way that we believe.
    if (const auto* refused = std::get_if<protocol::Refused>(&*answer)) {
      refused_for_good_ = refused->for_good;
      return refused_by(address_, *refused);
    }
    if (!protocol::proved(*frame, key_, Sender::kServer, received_++)) {
      return Status(Code::kProtocol, "server " + address_ + " does not know our secret");
    }
    if (const auto* queued = std::get_if<protocol::Queued>(&*answer)) {
      place = *queued;
      if (request.on_queued) request.on_queued(*queued, false);
      continue;
    }
    const auto* grant = std::get_if<protocol::Grant>(&*answer);
    if (grant == nullptr) return unexpected(address_);
    SessionData data;
    data.servers = {address_};
    data.lease = grant->lease;
    data.ticket = grant->ticket;
    data.ticket_key = protocol::ticket_key(protocol::lease_key(key_, grant->lease), grant->ticket);
    data.challenge = grant->challenge;
    data.device_count = grant->devices;
    data.encrypted = encrypted();
    // A user that goes through a proxy, which may delay, meter or forward, wants the session to do
    // so too.
    const auto there = transport::sockets::peer_address(fd());
    const bool direct = there.ok() && there->to_string() == grant->reached_at;
    if (direct && !data.encrypted && !grant->local.empty()) {
      if (!protocol::is_local_address(grant->local)) {
        return Status(Code::kProtocol,
                      "server " + address_ + " names a local socket that is not gpurund's");
      }
      data.local = grant->local;
    }
    models_ = grant->models;
    emulated_ = grant->emulated;
    return data;
  }
}

Result<protocol::Listing> ControlLink::list() {
  GPURUN_RETURN_IF_ERROR(ask(protocol::ListRequest{}));
  const Result<ControlFrame> frame =
      protocol::receive_control(*connection_, protocol::kListingBytesMax, handshake_deadline());
  if (!frame.ok()) return frame.status();
  Result<ControlMessage> answer = protocol::decode(frame->payload);
  if (!answer.ok()) return answer.status();
  if (const auto* refused = std::get_if<protocol::Refused>(&*answer)) {
    return refused_by(address_, *refused);
  }
  if (!protocol::proved(*frame, key_, Sender::kServer, received_++)) {
    return Status(Code::kProtocol, "server " + address_ + " does not know our secret");
  }
  auto* listing = std::get_if<protocol::Listing>(&*answer);
  if (listing == nullptr) return unexpected(address_);
  return std::move(*listing);
}

int ControlLink::fd() const noexcept { return connection_->fd(); }

Status ControlLink::lease_ended() {
  pollfd ready = {fd(), POLLIN, 0};
  if (poll(&ready, 1, 0) <= 0) return Status();
  Result<ControlFrame> frame = protocol::receive_control(*connection_, limits::kHelloBytesMax,
                                                         Deadline::in(std::chrono::seconds(1)));
  if (!frame.ok()) {
    return Status(Code::kPeerGone,
                  "server " + address_ + " ended the lease: " + frame.status().message());
  }
  const Result<ControlMessage> message = protocol::decode(frame->payload);
  if (message.ok() && protocol::proved(*frame, key_, Sender::kServer, received_++)) {
    if (const auto* ended = std::get_if<protocol::WorkerEnded>(&*message)) {
      worker_deaths_.push_back(*ended);
      return Status();
    }
    if (const auto* refused = std::get_if<protocol::Refused>(&*message)) {
      return refused_by(address_, *refused);
    }
  }
  return unexpected(address_);
}

}  // namespace gpurun::client
