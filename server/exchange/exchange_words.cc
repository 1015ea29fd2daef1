// One SOCK_SEQPACKET message with the descriptors attached (unix(7), SCM_RIGHTS).
#include "server/exchange/exchange_words.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cstring>

namespace gpurun::server {
namespace {

using ControlBuffer = std::array<std::byte, CMSG_SPACE(kExchangeDescriptorsMax * sizeof(int))>;

Status failure(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK) return Status(Code::kDeadline, "the exchange waits");
  if (error == EPIPE || error == ECONNRESET) return Status(Code::kPeerGone, "the exchange ended");
  return Status::from_errno(error, "exchange");
}

// What is memory to its driver: a file of memory, or a device's. A socket that lingers would hold
// up whoever closes it last; so it shall not linger, and what else there is is not taken.
bool is_memory(int fd) {
  struct stat about = {};
  if (fstat(fd, &about) != 0) return false;
  if (S_ISSOCK(about.st_mode)) {
    const linger at_once = {};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  return S_ISREG(about.st_mode) || S_ISCHR(about.st_mode);
}

}  // namespace

Status send_words(int socket, const ExchangeWords& words, const std::vector<int>& descriptors,
                  bool wait) {
  if (descriptors.size() > kExchangeDescriptorsMax || words.descriptors != descriptors.size()) {
    return Status(Code::kInternal, "exchange of an impossible number of descriptors");
  }
  iovec bytes = {const_cast<ExchangeWords*>(&words), sizeof words};
  alignas(cmsghdr) ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const std::size_t length = descriptors.size() * sizeof(int);
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(length);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(length);
    std::memcpy(CMSG_DATA(rights), descriptors.data(), length);
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? failure(errno) : Status();
}

Status receive_words(int socket, ExchangeWords* words, std::vector<UniqueFd>* descriptors,
                     bool wait) {
  iovec bytes = {words, sizeof *words};
  alignas(cmsghdr) ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  } while (got < 0 && errno == EINTR);
  if (got < 0) return failure(errno);
  descriptors->clear();
  bool all_memory = true;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      descriptors->emplace_back(fd);
      all_memory = is_memory(fd) && all_memory;
    }
  }
  if (got == 0) return Status(Code::kPeerGone, "the exchange ended");
  if (got != sizeof *words || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      words->descriptors != descriptors->size() || words->content_bytes > kExchangeContentBytes ||
      !all_memory) {
    return Status(Code::kProtocol, "no message of an exchange");
  }
  return Status();
}

}  // namespace gpurun::server
