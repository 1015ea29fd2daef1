// Token descriptor: a pair of SOCK_SEQPACKET sockets.
#include "client/process/token_descriptor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace gpurun::client {

Result<TokenDescriptor> make_token_descriptor(ByteView token, int watch_min) {
  int pair[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return Status::from_errno(errno, "socketpair");
  }
  UniqueFd program(pair[0]), watch(pair[1]);
  UniqueFd high(fcntl(watch.get(), F_DUPFD_CLOEXEC, watch_min));
  if (high.valid()) watch = std::move(high);
  const ssize_t sent = send(watch.get(), token.data(), token.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(token.size()) || fcntl(program.get(), F_SETFD, 0) != 0) {
    return Status::from_errno(errno, "a token's socket");
  }
  TokenDescriptor made;
  made.program = program.release();
  made.watch = std::move(watch);
  return made;
}

bool read_token_descriptor(int fd, MutableBytes token) noexcept {
  const int before = errno;
  int kind = 0, domain = 0;
  socklen_t bytes = sizeof kind;
  bool right =
      fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &bytes) == 0 && kind == SOCK_SEQPACKET;
  bytes = sizeof domain;
  right = right && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
  // MSG_TRUNC: the whole length of the message, even if it is longer.
  right = right && recv(fd, token.data(), token.size(), MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC) ==
                       static_cast<ssize_t>(token.size());
  errno = before;
  return right;
}

}  // namespace gpurun::client
