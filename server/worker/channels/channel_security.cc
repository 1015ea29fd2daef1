// Channel security: the handshakes of all connections of a session run at once, so that together
// they cost one round trip.
#include "server/worker/channels/channel_security.h"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_name.h"
#include "protocol/control/control.h"
#include "protocol/control/session_identity.h"
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

// `waited`, unless null, is called when nothing more is expected from the peer.
Status shake_hands(const HandOver& hand_over, std::size_t index, std::size_t count,
                   std::unique_ptr<transport::Connection>* connection, Deadline deadline,
                   const std::function<void()>& waited = nullptr) {
  auto handshake = handshake_of(hand_over, index, count);
  if (!handshake.ok()) return handshake.status();
  GPURUN_RETURN_IF_ERROR((*handshake)->answer(**connection, deadline));
  Result<tls::Channel> channel = (*handshake)->finish(**connection, deadline);
  if (!channel.ok()) return channel.status();
  if (waited) waited();
  auto secured = tls::secure(std::move(*connection), *std::move(channel));
  if (!secured.ok()) return secured.status();
  *connection = *std::move(secured);
  return {};
}

// Runs the handshakes of a session at once, each but the first on a thread of its own. The client
// waits meanwhile, so processors are often free for this costly work. After one failure the others
// are abandoned.
class Handshakes {
 public:
  Handshakes(const HandOver& hand_over, std::vector<std::unique_ptr<transport::Connection>*> all,
             Deadline deadline)
      : hand_over_(hand_over), all_(std::move(all)), deadline_(deadline) {
    for (auto* connection : all_) waiting_.push_back(connection->get());
  }

  Status shake_all() {
    std::vector<std::jthread> others;
    others.reserve(all_.size());
    std::size_t next = 1;
    try {
      for (; next < all_.size(); ++next) {
        others.emplace_back([this, next] {
          name_this_thread("gpurun-attach");
          shake(next);
        });
      }
    } catch (const std::system_error&) {
      // The rest run one after the other.
    }
    shake(0);
    for (; next < all_.size(); ++next) shake(next);
    others.clear();
    return failure_;
  }

 private:
  void shake(std::size_t index) {
    const auto no_longer_waiting = [this, index] {
      const std::lock_guard lock(mutex_);
      waiting_[index] = nullptr;
    };
    const Status shaken =
        shake_hands(hand_over_, index, all_.size(), all_[index], deadline_, no_longer_waiting);
    if (shaken.ok()) return;
    const std::lock_guard lock(mutex_);
    waiting_[index] = nullptr;
    if (!failure_.ok()) return;  // Usually the result of our own shut_down().
    failure_ = shaken;
    for (transport::Connection* connection : waiting_) {
      if (connection != nullptr) connection->shut_down();
    }
  }

  const HandOver& hand_over_;
  const std::vector<std::unique_ptr<transport::Connection>*> all_;
  const Deadline deadline_;
  std::mutex mutex_;
  std::vector<transport::Connection*> waiting_;  // Guarded by mutex_. nullptr: done.
  Status failure_;                               // Guarded by mutex_. The first one.
};

// Receives and checks the Attach of connection `index`.
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
  GPURUN_RETURN_IF_ERROR(Handshakes(hand_over, all, deadline).shake_all());
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
