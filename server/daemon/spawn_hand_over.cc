// One SOCK_SEQPACKET message with the descriptors attached (unix(7), SCM_RIGHTS).
#include "server/daemon/spawn_hand_over.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>
#include <utility>

#include "protocol/control.h"

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
};
constexpr std::uint32_t kMagic = 0x68616e64;

using ControlBuffer = std::array<std::byte, CMSG_SPACE(protocol::kConnectionsMax * sizeof(int))>;

Status malformed() { return Status(Code::kProtocol, "gpurund handed over nothing usable"); }

}  // namespace

Status send_hand_over(int socket, const WorkerOrder& order, const std::vector<int>& connections) {
  if (connections.size() < 2 || connections.size() > protocol::kConnectionsMax) {
    return Status(Code::kInternal, "hand-over of an impossible number of connections");
  }
  Message message{};
  message.magic = kMagic;
  message.connections = static_cast<std::uint32_t>(connections.size());
  message.session = order.session;
  message.key = order.key;
  message.rows = order.rows;
  message.features = order.features;
  message.encrypted = order.encrypted ? 1 : 0;
  message.lease = order.lease;
  message.ticket = order.ticket;
  iovec bytes = {&message, sizeof message};
  alignas(cmsghdr) ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = CMSG_SPACE(connections.size() * sizeof(int));
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(connections.size() * sizeof(int));
  std::memcpy(CMSG_DATA(rights), connections.data(), connections.size() * sizeof(int));
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? Status::from_errno(errno, "hand-over to the worker") : Status();
}

Result<HandOver> receive_hand_over(int socket) {
  Message message{};
  iovec bytes = {&message, sizeof message};
  alignas(cmsghdr) ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return Status::from_errno(errno, "hand-over from gpurund");
  HandOver result;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      result.connections.emplace_back(fd);
    }
  }
  if (got != sizeof message || message.magic != kMagic || result.connections.size() < 2 ||
      result.connections.size() != message.connections) {
    return malformed();
  }
  result.session = message.session;
  result.key = message.key;
  result.rows = message.rows;
  result.features = message.features;
  result.encrypted = message.encrypted != 0;
  result.lease = message.lease;
  result.ticket = message.ticket;
  return result;
}

}  // namespace gpurun::server
