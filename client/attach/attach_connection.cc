// open_attach_connection(): the worker takes part in the handshake, so the call waits for its
// start.
#include "client/attach/attach_connection.h"

#include <utility>

#include "client/attach/broker.h"
#include "protocol/control/session_identity.h"
#include "transport/shm/connection.h"
#include "transport/tls/connection.h"

namespace gpurun::client {

Status not_answered(const std::string& server, std::chrono::milliseconds patience) {
  return Status(Code::kDeadline, "server " + server +
                                     " has taken the connections and not answered within " +
                                     std::to_string(patience.count()) +
                                     " ms; its log shows whether its driver starts");
}

namespace {

Status encrypt(const AttachConnection& one, std::unique_ptr<transport::Connection>& connection) {
  const protocol::SessionIdentity identity{one.words.lease, one.words.ticket, one.words.session,
                                           one.words.index, one.words.count};
  transport::tls::ServerTrust trust;
  trust.key = {protocol::encode_identity(identity), *one.tls_key};
  auto handshake = transport::tls::Handshake::of_client(trust);
  if (!handshake.ok()) return handshake.status();
  Result<transport::tls::Channel> channel = (*handshake)->finish(*connection, one.deadline);
  if (channel.status().code() == Code::kDeadline) return not_answered(one.server, one.patience);
  if (!channel.ok()) {
    return Status(channel.status().code(),
                  "server " + one.server + ": " + channel.status().message());
  }
  auto secured = transport::tls::secure(std::move(connection), *std::move(channel));
  if (!secured.ok()) return secured.status();
  connection = *std::move(secured);
  return {};
}

Status offer_memory(const AttachConnection& one, transport::DescriptorKeeper* keeper,
                    transport::Connection& connection, OpenedConnection* opened) {
  if (one.offered_file >= 0) {
    return transport::shm::offer_file(connection, one.offered_file, one.deadline);
  }
  if (keeper != nullptr) keeper->before_change();  // No child may get the memory or its file.
  auto memory = transport::shm::offer(connection, transport::shm::kRingBytes, one.deadline,
                                      &opened->why_no_memory);
  if (keeper != nullptr) keeper->after_change(connection.fd());
  // A peer that has ended may have sent the reason. The code that reads the answer reports it.
  if (memory.status().code() == Code::kPeerGone) return {};
  if (!memory.ok()) return memory.status();
  opened->memory = *std::move(memory);
  return {};
}

}  // namespace

Result<OpenedConnection> open_attach_connection(const AttachConnection& one,
                                                transport::DescriptorKeeper* keeper) {
  transport::Options options;
  options.fd_min = one.fd_min;
  options.others_may_close = true;
  options.keeper = keeper;
  const bool local = !one.local.empty();
  auto connection =
      one.broker.empty()
          ? transport::connect(local ? one.local : "tcp://" + one.server, one.connected, options)
          : connect_by_broker(one.broker, local ? BrokerKind::kLocal : BrokerKind::kTcp,
                              one.connected, options);
  // Also covers systems that forbid such sockets: the caller then tries another transport.
  if (!connection.ok() && local) {
    return Status(Code::kUnavailable, connection.status().message());
  }
  if (!connection.ok()) return connection.status();
  Status said;
  transport::Connection* const below = one.tls_key ? connection->get() : nullptr;
  if (one.tls_key) said = encrypt(one, *connection);
  if (said.ok()) {
    said = protocol::send_control(**connection, one.words, one.key, protocol::Sender::kClient,
                                  one.words.index, one.deadline);
  }
  OpenedConnection opened;
  if (said.ok() && local) said = offer_memory(one, keeper, **connection, &opened);
  if (said.ok()) {
    opened.connection = *std::move(connection);
    opened.below = below;
    return opened;
  }
  if (keeper != nullptr) let_go(*keeper, *connection);
  return said;
}

Result<std::unique_ptr<transport::Connection>> OpenedConnection::carry_calls(bool may_change) && {
  transport::carrier::CarrierOptions options;
  options.may_change = may_change;
  return transport::shm::share(std::move(connection), std::move(memory),
                               transport::shm::Side::kOffered, options);
}

void let_go(transport::DescriptorKeeper& keeper,
            std::unique_ptr<transport::Connection>& connection) noexcept {
  keeper.before_change();
  connection.reset();
  keeper.after_change(-1);
}

}  // namespace gpurun::client
