// The handshakes of a session's connections take place at once, so that they cost one round trip
// together.
#include "server/worker/channel_security.h"

#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/control.h"
#include "protocol/session_identity.h"
#include "transport/tls/connection.h"

namespace gpurun::server {
namespace {

namespace tls = transport::tls;

std::vector<std::unique_ptr<transport::Connection>*> all_of(WorkerChannels& channels) {
  std::vector<std::unique_ptr<transport::Connection>*> all = {&channels.log};
  for (auto& bulk : channels.bulk) all.push_back(&bulk);
  return all;
}

Result<std::unique_ptr<tls::Handshake>> handshake_of(const HandOver& hand_over, std::size_t index,
                                                     std::size_t count) {
  const protocol::SessionIdentity identity{hand_over.lease, hand_over.ticket, hand_over.session,
                                           static_cast<std::uint16_t>(index),
                                           static_cast<std::uint16_t>(count)};
  return tls::Handshake::of_server({protocol::encode_identity(identity), hand_over.key});
}

Status finish(tls::Handshake& handshake, std::unique_ptr<transport::Connection>* connection,
              Deadline deadline) {
  Result<tls::Channel> channel = handshake.finish(**connection, deadline);
  if (!channel.ok()) return channel.status();
  auto secured = tls::secure(std::move(*connection), *std::move(channel));
  if (!secured.ok()) return secured.status();
  *connection = *std::move(secured);
  return {};
}

Status shake_hands(const HandOver& hand_over, std::size_t index, std::size_t count,
                   std::unique_ptr<transport::Connection>* connection, Deadline deadline) {
  auto handshake = handshake_of(hand_over, index, count);
  if (!handshake.ok()) return handshake.status();
  GPURUN_RETURN_IF_ERROR((*handshake)->answer(**connection, deadline));
  return finish(**handshake, connection, deadline);
}

// All at once, each but the first on a thread of its own: the client waits, and so its processor is
// often free, for what takes each of them most of a millisecond.
Status shake_all_hands(const HandOver& hand_over,
                       const std::vector<std::unique_ptr<transport::Connection>*>& all,
                       Deadline deadline) {
  std::vector<Status> outcomes(all.size());
  const auto shake = [&](std::size_t index) {
    outcomes[index] = shake_hands(hand_over, index, all.size(), all[index], deadline);
  };
  std::vector<std::thread> others;
  others.reserve(all.size());
  std::size_t next = 1;
  Status unstarted;
  try {
    for (; next < all.size(); ++next) others.emplace_back(shake, next);
  } catch (const std::system_error& error) {
    unstarted = Status(Code::kResourceExhausted, std::string("a thread: ") + error.what());
  }
  if (unstarted.ok()) shake(0);
  for (std::thread& other : others) other.join();
  GPURUN_RETURN_IF_ERROR(unstarted);
  for (Status& outcome : outcomes) GPURUN_RETURN_IF_ERROR(std::move(outcome));
  return {};
}

// The words of connection `index`.
Result<protocol::Attach> hear_attach(const HandOver& hand_over, transport::Connection& connection,
                                     std::size_t index, std::size_t count, protocol::Key* key,
                                     Deadline deadline) {
  const Result<protocol::ControlFrame> frame =
      protocol::receive_control(connection, limits::kHelloBytesMax, deadline);
  if (!frame.ok()) return frame.status();
  const Result<protocol::ControlMessage> message = protocol::decode(frame->payload);
  if (!message.ok()) return message.status();
  const auto* attach = std::get_if<protocol::Attach>(&*message);
  const Status unfit(Code::kProtocol, "the client attaches with words that do not fit");
  if (attach == nullptr) return unfit;
  GPURUN_RETURN_IF_ERROR(protocol::check_version(attach->version, "client"));
  *key = protocol::attach_key_inside(hand_over.key, attach->nonce, hand_over.session);
  if (attach->lease != hand_over.lease || attach->ticket != hand_over.ticket ||
      attach->session != hand_over.session || attach->index != index || attach->count != count ||
      !protocol::proved(*frame, *key, protocol::Sender::kClient, attach->index)) {
    return unfit;
  }
  return *attach;
}

}  // namespace

Status secure_channels(HandOver& hand_over, WorkerChannels& channels, Deadline deadline) {
  if (!hand_over.encrypted) return {};
  const auto all = all_of(channels);
  GPURUN_RETURN_IF_ERROR(shake_all_hands(hand_over, all, deadline));
  std::optional<protocol::Attach> first;
  protocol::Key key{};
  Status refusal;
  for (std::size_t index = 0; index < all.size(); ++index) {
    const Result<protocol::Attach> attach =
        hear_attach(hand_over, **all[index], index, all.size(), &key, deadline);
    if (attach.status().code() == Code::kRefused) {
      refusal = attach.status();
      continue;
    }
    if (!attach.ok()) return attach.status();
    if (!first) first = *attach;
    if (attach->nonce != first->nonce || attach->rows != first->rows ||
        attach->version.features != first->version.features) {
      return Status(Code::kProtocol, "the connections of a session contradict each other");
    }
  }
  hand_over.key = key;
  if (!refusal.ok()) return refusal;
  hand_over.rows = first->rows;
  hand_over.features = first->version.features;
  return {};
}

Result<protocol::Key> secure_late(const HandOver& session, std::uint16_t index,
                                  std::unique_ptr<transport::Connection>* connection,
                                  Deadline deadline) {
  const std::size_t count = std::size_t{index} + 1;
  GPURUN_RETURN_IF_ERROR(shake_hands(session, index, count, connection, deadline));
  protocol::Key key{};
  const auto attach = hear_attach(session, **connection, index, count, &key, deadline);
  if (!attach.ok()) return attach.status();
  return key;
}

}  // namespace gpurun::server
