// Messages with descriptors: the kernel delivers one whole, or flags that it was truncated.
#include "base/descriptor_message.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <array>
#include <cstring>

namespace gpurun {
namespace {

using ControlBuffer = std::array<std::byte, CMSG_SPACE(kAttachedMax * sizeof(int))>;

Status failure(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK) return Status(Code::kDeadline, "a message waits");
  if (error == EPIPE || error == ECONNRESET) {
    return Status(Code::kPeerGone, "the other end of a message has closed");
  }
  return Status::from_errno(error, "message between processes");
}

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

int flags_of(Wait wait) { return wait == Wait::kNever ? MSG_DONTWAIT : 0; }

}  // namespace

Status send_message(int socket, ByteView bytes, std::span<const int> attached, Wait wait) {
  if (attached.size() > kAttachedMax) return Status(Code::kInternal, "too many descriptors");
  iovec run = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &run;
  header.msg_iovlen = 1;
  if (!attached.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(attached.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(attached.size_bytes());
    std::memcpy(CMSG_DATA(rights), attached.data(), attached.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL | flags_of(wait));
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? failure(errno) : Status();
}

Result<DescriptorMessage> receive_message(int socket, std::size_t bytes_max, Wait wait) {
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
    got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | flags_of(wait));
  } while (got < 0 && errno == EINTR);
  if (got < 0) return failure(errno);
  take_descriptors(header, &message.attached);
  const bool whole = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  if (!whole || got == 0) {
    for (const UniqueFd& each : message.attached) let_not_linger(each);
  }
  if (!whole) return Status(Code::kProtocol, "a message is longer than it may be");
  if (got == 0) return Status(Code::kPeerGone, "the other end of a message has closed");
  message.bytes.resize(static_cast<std::size_t>(got));
  return message;
}

void let_not_linger(const UniqueFd& file) noexcept {
  struct stat about = {};
  if (fstat(file.get(), &about) != 0 || !S_ISSOCK(about.st_mode)) return;
  constexpr linger kAtOnce = {};
  (void)setsockopt(file.get(), SOL_SOCKET, SO_LINGER, &kAtOnce, sizeof kAtOnce);
}

}  // namespace gpurun
