// Daemon: connections with TLS. The daemon is the TLS server of a control link. It only peeks at a
// session's connection, and leaves all bytes unread, because the worker does that handshake.
#include <spdlog/spdlog.h>

#include <utility>

#include "protocol/control/session_identity.h"
#include "server/daemon/daemon.h"
#include "transport/tls/client_hello.h"
#include "transport/tls/connection.h"

namespace gpurun::server {
namespace {

namespace tls = transport::tls;

}  // namespace

Status Daemon::check_plaintext(const transport::Connection& connection) const {
  const bool within = connection.capabilities().same_host;
  if (!options_.tls_only && (within || live()->insecure_plaintext)) return {};
  return Status(Code::kRefused,
                within ? "this server speaks TLS only; use --tls"
                       : "this server speaks TLS beyond its machine; without it both sides need "
                         "--insecure-plaintext");
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
