// The kernel delivers such a message whole, or says that it has cut it off.
#include "server/daemon/descriptor_message.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstring>

namespace gpurun::server {
namespace {

using ControlBuffer = std::array<std::byte, CMSG_SPACE(kAttachedMax * sizeof(int))>;

void take_descriptors(msghdr& header, std::vector<UniqueFd>* into) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      into->emplace_back(fd);
    }
  }
}

}  // namespace

Status send_message(int socket, ByteView bytes, const std::vector<int>& attached) {
  if (attached.size() > kAttachedMax) return Status(Code::kInternal, "too many descriptors");
  iovec run = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &run;
  header.msg_iovlen = 1;
  if (!attached.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(attached.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(attached.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), attached.data(), attached.size() * sizeof(int));
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? Status::from_errno(errno, "message to the worker") : Status();
}

Result<DescriptorMessage> receive_message(int socket, std::size_t bytes_max) {
  DescriptorMessage message;
  message.bytes.resize(bytes_max);
  iovec run = {message.bytes.data(), message.bytes.size()};
  alignas(cmsghdr) ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &run;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return Status::from_errno(errno, "message from gpurund");
  take_descriptors(header, &message.attached);
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Status(Code::kProtocol, "gpurund said more than it may");
  }
  if (got == 0) return Status(Code::kPeerGone, "gpurund has ended");
  message.bytes.resize(static_cast<std::size_t>(got));
  return message;
}

}  // namespace gpurun::server
