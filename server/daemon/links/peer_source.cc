// Peer source: as the kernel reports it, which the peer cannot change.
#include "server/daemon/links/peer_source.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace gpurun::server {
namespace {

constexpr std::size_t kPrefixBytes = 8;

std::string bytes_behind(char kind, const void* bytes, std::size_t count) {
  return kind + std::string(static_cast<const char*>(bytes), count);
}

}  // namespace

std::string source_of(int fd) {
  const Result<transport::sockets::SocketAddress> peer = transport::sockets::peer_address(fd);
  if (!peer.ok()) return {};
  if (peer->family() == AF_UNIX) {
    ucred credentials = {};
    socklen_t bytes = sizeof credentials;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return {};
    return bytes_behind('u', &credentials.uid, sizeof credentials.uid);
  }
  return source_of(*peer);
}

std::string source_of(const transport::sockets::SocketAddress& peer) {
  if (peer.family() == AF_INET) {
    sockaddr_in v4 = {};
    std::memcpy(&v4, &peer.storage, sizeof v4);
    return bytes_behind('4', &v4.sin_addr, sizeof v4.sin_addr);
  }
  if (peer.family() != AF_INET6) return {};
  sockaddr_in6 v6 = {};
  std::memcpy(&v6, &peer.storage, sizeof v6);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    return bytes_behind('4', &v6.sin6_addr.s6_addr[12], sizeof(in_addr));
  }
  return bytes_behind('6', &v6.sin6_addr, kPrefixBytes);
}

}  // namespace gpurun::server
