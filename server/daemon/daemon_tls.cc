// Daemon: connections with TLS. The daemon is the TLS server of a control link. It only peeks at a
// session's connection, and leaves all bytes unread, because the worker does that handshake.
#include <errno.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "protocol/control/session_identity.h"
#include "server/daemon/daemon.h"
#include "transport/tls/client_hello.h"
#include "transport/tls/connection.h"

namespace gpurun::server {
namespace {

namespace tls = transport::tls;

// For an alert, which is only a courtesy.
constexpr std::chrono::milliseconds kAlertDeadline{100};

// Peeks at the first `bytes` that have come, and leaves them unread. A peek returns nothing beyond
// a byte that was sent as urgent (tcp(7), unix(7)), although poll() returns. So a peek ends the
// link when it gets no more than the one before it, although poll() reports enough.
Result<Bytes> peek_waiting(int fd, std::size_t bytes, Deadline deadline) {
  Bytes seen(bytes);
  bool told = false, left = false;
  ssize_t told_of = -1;  // The result of a peek after poll() had reported enough.
  for (;;) {
    const ssize_t got = recv(fd, seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got == static_cast<ssize_t>(bytes)) return seen;
    if (got < 0 && errno != EAGAIN && errno != EINTR) return Status::from_errno(errno, "peek");
    const ssize_t has = std::max<ssize_t>(got, 0);
    if (got == 0 || (told && left)) {
      return Status(Code::kPeerGone, "the peer left before it identified itself");
    }
    if (told && has <= told_of) {
      return Status(Code::kProtocol, "the peer sent urgent data where its first words belong");
    }
    if (told) told_of = has;
    if (deadline.passed()) return Status(Code::kDeadline, "it does not identify itself");
    pollfd ready = {fd, POLLIN | POLLRDHUP, 0};
    told = poll(&ready, 1, deadline.poll_timeout_ms()) > 0;
    left = told && (ready.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }
}

Result<Bytes> peek(int fd, std::size_t bytes, Deadline deadline) {
  const auto wanted = static_cast<int>(bytes);
  // Makes it readable only when that many bytes have come.
  if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted) != 0) {
    return Status::from_errno(errno, "SO_RCVLOWAT");
  }
  Result<Bytes> seen = peek_waiting(fd, bytes, deadline);
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
  return seen;
}

Result<Bytes> peek_hello(int fd, Deadline deadline) {
  const Result<Bytes> head = peek(fd, tls::kHelloHeadBytes, deadline);
  if (!head.ok()) return head.status();
  const Result<std::size_t> bytes = tls::hello_record_bytes(*head);
  if (!bytes.ok()) return bytes.status();
  if (*bytes > limits::kHelloBytesMax) {
    return Status(Code::kTooLarge, "a ClientHello of " + std::to_string(*bytes) + " bytes");
  }
  return peek(fd, *bytes, deadline);
}

}  // namespace

Result<bool> Daemon::begins_with_tls(const transport::Connection& connection, Deadline deadline) {
  if (connection.fd() < 0) return false;  // A test's, without a descriptor.
  const Result<Bytes> first = peek(connection.fd(), 1, deadline);
  if (!first.ok()) return first.status();
  return first->front() == tls::kHandshakeByte;
}

Status Daemon::check_plaintext(const transport::Connection& connection) const {
  const bool within = connection.capabilities().same_host;
  if (!options_.tls_only && (within || live()->insecure_plaintext)) return {};
  return Status(Code::kRefused,
                within ? "this server speaks TLS only; use --tls"
                       : "this server speaks TLS beyond its machine; without it both sides need "
                         "--insecure-plaintext");
}

// Reads and drops what has come before it closes. A close with unread bytes would discard the
// alert.
void Daemon::refuse_in_tls(transport::Connection& connection, transport::tls::Alert alert) {
  std::array<std::byte, limits::kHelloBytesMax> dropped;
  if (connection.fd() >= 0) {
    static_cast<void>(recv(connection.fd(), dropped.data(), dropped.size(), MSG_DONTWAIT));
  }
  const Bytes record = tls::alert_record(alert);
  const ByteView part(record);
  static_cast<void>(connection.send({&part, 1}, Deadline::in(kAlertDeadline)));
}

void Daemon::serve_tls(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
                       Deadline deadline) {
  const std::string peer = connection->description();
  const Result<Bytes> hello = peek_hello(connection->fd(), deadline);
  if (!hello.ok()) return spdlog::info("{}: {}", peer, hello.status().to_string());
  const Result<std::optional<tls::KeyOffer>> offer = tls::read_key_offer(*hello);
  if (!offer.ok()) return spdlog::info("{}: {}", peer, offer.status().to_string());
  const std::optional<protocol::SessionIdentity> identity =
      *offer ? protocol::decode_identity((*offer)->identity) : std::nullopt;
  if (identity) return serve_session(connection, **offer, *identity, half_open);
  const std::shared_ptr<const tls::Identity> own = live()->identity;
  if (own == nullptr) {
    spdlog::info("{}: wants TLS, for which this server has no certificate", peer);
    return refuse_in_tls(*connection, tls::Alert::kHandshakeFailure);
  }
  auto handshake = tls::Handshake::of_server(own);
  if (!handshake.ok()) return spdlog::error("{}: {}", peer, handshake.status().to_string());
  Result<tls::Channel> channel = (*handshake)->finish(*connection, deadline);
  if (!channel.ok()) return spdlog::info("{}: {}", peer, channel.status().to_string());
  const protocol::Nonce exporter = channel->binding;
  tls::TlsOptions options;
  options.reads_ahead = false;  // The daemon polls its descriptor.
  auto secured = tls::secure(std::move(connection), *std::move(channel), options);
  if (!secured.ok()) return spdlog::error("{}: {}", peer, secured.status().to_string());
  connection = *std::move(secured);
  serve_link(connection, half_open, exporter, deadline);
}

void Daemon::serve_session(std::unique_ptr<transport::Connection>& connection,
                           const transport::tls::KeyOffer& offer,
                           const protocol::SessionIdentity& identity, HalfOpen& half_open) {
  const std::string peer = connection->description();
  const auto no = [&](tls::Alert alert, const char* why) {
    spdlog::warn("{}: attach: {}", peer, why);
    audit_.write_refusal("attach.refused", {{"from", peer}, {"reason", why}});
    refuse_in_tls(*connection, alert);
  };
  const Result<protocol::Key> key = book_.tls_key(identity);
  if (!key.ok()) return no(tls::Alert::kUnknownKey, key.status().message().c_str());
  // The whole handshake proves it again, to the worker. This check keeps strangers from starting
  // one.
  if (!tls::binder_proves(offer, *key)) {
    return no(tls::Alert::kDecryptError, "the ticket is not proved");
  }
  half_open.proved();
  token_watch_.heed();  // As for an attach without encryption.
  protocol::Attach attach;
  attach.lease = identity.lease;
  attach.ticket = identity.ticket;
  attach.session = identity.session;
  attach.index = identity.index;
  attach.count = identity.count;
  threads_.forget(connection.get());
  const Status taken = take_in(attach, *key, connection, true);
  if (!taken.ok()) no(tls::Alert::kAccessDenied, taken.message().c_str());
}

}  // namespace gpurun::server
