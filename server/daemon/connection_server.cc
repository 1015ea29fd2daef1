// ConnectionServer: the first bytes decide whether TLS, a hello or an attach follows.
#include "server/daemon/connection_server.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "protocol/control/session_identity.h"
#include "server/daemon/links/tls_hello.h"
#include "transport/shm/memory.h"
#include "transport/tls/client_hello.h"
#include "transport/tls/connection.h"

namespace gpurun::server {
namespace {

namespace tls = transport::tls;
using protocol::ControlFrame;
using protocol::ControlMessage;
using protocol::Sender;

}  // namespace

Status ConnectionServer::check_plaintext(const transport::Connection& connection) const {
  const bool within = connection.capabilities().same_host;
  if (!parts_.options.tls_only && (within || parts_.settings.get()->insecure_plaintext)) return {};
  return Status(Code::kRefused,
                within ? "this server speaks TLS only; use --tls"
                       : "this server speaks TLS beyond its machine; without it both sides need "
                         "--insecure-plaintext");
}

void ConnectionServer::serve_tls(std::unique_ptr<transport::Connection>& connection,
                                 HalfOpen& half_open, Deadline deadline) {
  const std::string peer = connection->description();
  const Result<Bytes> hello = peek_hello(connection->fd(), deadline);
  if (!hello.ok()) return spdlog::info("{}: {}", peer, hello.status().to_string());
  const Result<std::optional<tls::KeyOffer>> offer = tls::read_key_offer(*hello);
  if (!offer.ok()) return spdlog::info("{}: {}", peer, offer.status().to_string());
  const std::optional<protocol::SessionIdentity> identity =
      *offer ? protocol::decode_identity((*offer)->identity) : std::nullopt;
  if (identity) return serve_session(connection, **offer, *identity, half_open);
  const std::shared_ptr<const tls::Identity> own = parts_.settings.get()->identity;
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

void ConnectionServer::serve_session(std::unique_ptr<transport::Connection>& connection,
                                     const transport::tls::KeyOffer& offer,
                                     const protocol::SessionIdentity& identity,
                                     HalfOpen& half_open) {
  const std::string peer = connection->description();
  const auto no = [&](tls::Alert alert, const char* why) {
    spdlog::warn("{}: attach: {}", peer, why);
    parts_.audit.write_refusal("attach.refused", {{"from", peer}, {"reason", why}});
    refuse_in_tls(*connection, alert);
  };
  const Result<protocol::Key> key = parts_.book.tls_key(identity);
  if (!key.ok()) return no(tls::Alert::kUnknownKey, key.status().message().c_str());
  // The whole handshake proves it again, to the worker. This check keeps strangers from starting
  // one.
  if (!tls::binder_proves(offer, *key)) {
    return no(tls::Alert::kDecryptError, "the ticket is not proved");
  }
  half_open.proved();
  parts_.tokens.apply_changes();  // As for an attach without encryption.
  protocol::Attach attach;
  attach.lease = identity.lease;
  attach.ticket = identity.ticket;
  attach.session = identity.session;
  attach.index = identity.index;
  attach.count = identity.count;
  parts_.threads.forget(connection.get());
  const Status taken = take_in(attach, *key, connection, true);
  if (!taken.ok()) no(tls::Alert::kAccessDenied, taken.message().c_str());
}

void ConnectionServer::serve(std::unique_ptr<transport::Connection>& connection,
                             HalfOpen& half_open, Deadline deadline) {
  const Result<bool> tls = begins_with_tls(*connection, deadline);
  if (!tls.ok()) {
    return spdlog::info("{}: {}", connection->description(), tls.status().to_string());
  }
  if (*tls && transport::shm::is_local(*connection)) {
    return spdlog::info("{}: speaks TLS, which is not spoken there", connection->description());
  }
  if (*tls) return serve_tls(connection, half_open, deadline);
  serve_link(connection, half_open, {}, deadline);
}

void ConnectionServer::serve_link(std::unique_ptr<transport::Connection>& connection,
                                  HalfOpen& half_open, const Exporter& exporter,
                                  Deadline deadline) {
  const std::string peer = connection->description();
  const Result<ControlFrame> frame =
      protocol::receive_control(*connection, limits::kHelloBytesMax, deadline);
  if (!frame.ok()) return spdlog::info("{}: {}", peer, frame.status().to_string());
  const Result<ControlMessage> message = protocol::decode(frame->payload);
  if (!message.ok()) return spdlog::info("{}: {}", peer, message.status().to_string());
  const bool encrypted = exporter.has_value();
  if (const Status allowed = check_plaintext(*connection); !encrypted && !allowed.ok()) {
    spdlog::warn("{}: speaks no TLS", peer);
    return refuse(*connection, allowed.message(), handshake());
  }
  if (const auto* hello = std::get_if<protocol::Hello>(&*message)) {
    parts_.leases.serve(*connection, *hello, half_open, exporter, deadline);
  } else if (const auto* attach = std::get_if<protocol::Attach>(&*message);
             attach != nullptr && !encrypted) {
    serve_attach(connection, *frame, *attach, half_open);
  } else {
    spdlog::info("{}: neither hello nor attach", peer);
  }
}

void ConnectionServer::serve_attach(std::unique_ptr<transport::Connection>& connection,
                                    const ControlFrame& frame, const protocol::Attach& attach,
                                    HalfOpen& half_open) {
  const std::string peer = connection->description();
  const auto no = [&](const Status& why) {
    // The process gets the reason. A private server writes to the terminal of that process.
    spdlog::log(parts_.options.for_one_run ? spdlog::level::info : spdlog::level::warn,
                "{}: attach: {}", peer, why.message());
    parts_.audit.write_refusal("attach.refused", {{"from", peer}, {"reason", why.message()}});
    refuse(*connection, why.message(), handshake());
  };
  const Status version = protocol::check_version(attach.version, "client");
  if (!version.ok()) return no(version);
  const Result<protocol::Key> key = parts_.book.attach_key(attach);
  if (!key.ok()) return no(key.status());
  if (!protocol::proved(frame, *key, Sender::kClient, attach.index)) {
    return no(Status(Code::kRefused, "the ticket is not proved"));
  }
  half_open.proved();
  parts_.tokens.apply_changes();  // A lease of a revoked token takes no session from that moment.
  parts_.threads.forget(connection.get());
  if (const Status taken = take_in(attach, *key, connection, false); !taken.ok()) no(taken);
}

Status ConnectionServer::take_in(const protocol::Attach& attach, const protocol::Key& key,
                                 std::unique_ptr<transport::Connection>& connection,
                                 bool encrypted) {
  const Result<bool> joins = parts_.book.join(attach, encrypted);
  if (!joins.ok()) return joins.status();
  if (*joins) {
    parts_.events.post(ExtraBulkConnection{attach.lease, attach.session, attach.index,
                                           encrypted ? protocol::Key{} : key, encrypted,
                                           std::move(connection)});
    return Status();
  }
  Result<std::optional<Arrival>> arrival = parts_.book.arrive(attach, key, connection, encrypted);
  if (!arrival.ok()) return arrival.status();
  if (arrival->has_value()) parts_.events.post(std::move(**arrival));
  return Status();
}

}  // namespace gpurun::server
