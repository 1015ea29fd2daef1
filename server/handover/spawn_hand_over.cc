// Hand-over: one SOCK_SEQPACKET message with the descriptors attached (unix(7), SCM_RIGHTS).
#include "server/handover/spawn_hand_over.h"

#include <cstring>
#include <utility>

#include "base/descriptor_message.h"
#include "protocol/control/control.h"

namespace gpurun::server {
namespace {

struct Message {
  std::uint32_t magic;
  std::uint32_t connections;
  protocol::Id session;
  protocol::Key key;
  Sha256Digest rows;
  protocol::Features features;
  std::uint32_t encrypted;
  protocol::Id lease;
  protocol::Id ticket;
  char images[256];  // Ends with a zero.
};
constexpr std::uint32_t kHandOverMagic = 0x68616e64;

static_assert(protocol::kConnectionsMax <= kAttachedMax);

Status malformed() { return Status(Code::kProtocol, "gpurund handed over nothing usable"); }

}  // namespace

Status send_hand_over(int socket, const WorkerOrder& order, const std::vector<int>& connections) {
  if (connections.size() < 2 || connections.size() > protocol::kConnectionsMax) {
    return Status(Code::kInternal, "hand-over of an impossible number of connections");
  }
  const std::string images = images_of(order.user);
  Message message{};
  if (images.size() >= sizeof message.images) {
    return Status(Code::kInternal, "a user's name is too long for a worker");
  }
  message.magic = kHandOverMagic;
  message.connections = static_cast<std::uint32_t>(connections.size());
  message.session = order.session;
  message.key = order.key;
  message.rows = order.rows;
  message.features = order.features;
  message.encrypted = order.encrypted ? 1 : 0;
  message.lease = order.lease;
  message.ticket = order.ticket;
  images.copy(message.images, images.size());
  return send_message(socket, byte_view(&message, sizeof message), connections, Wait::kNever);
}

Result<HandOver> receive_hand_over(int socket) {
  Result<DescriptorMessage> received = receive_message(socket, sizeof(Message), Wait::kYes);
  if (!received.ok()) return received.status();
  Message message{};
  if (received->bytes.size() != sizeof message) return malformed();
  std::memcpy(&message, received->bytes.data(), sizeof message);
  HandOver result;
  result.connections = std::move(received->attached);
  if (message.magic != kHandOverMagic || message.images[sizeof message.images - 1] != '\0' ||
      result.connections.size() < 2 || result.connections.size() != message.connections) {
    return malformed();
  }
  result.session = message.session;
  result.key = message.key;
  result.rows = message.rows;
  result.features = message.features;
  result.encrypted = message.encrypted != 0;
  result.lease = message.lease;
  result.ticket = message.ticket;
  result.images = message.images;
  return result;
}

}  // namespace gpurun::server
