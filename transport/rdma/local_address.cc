// Addresses of a socket (getsockname(2), getpeername(2)), as GIDs.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "transport/rdma/fabric.h"

namespace gpurun::transport::rdma {
namespace {

Result<Gid> gid_of(int socket, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof address;
  if (ask(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return Status::from_errno(errno, "the address of a connection");
  }
  Gid gid{};
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 six = {};
    std::memcpy(&six, &address, sizeof six);
    std::memcpy(gid.data(), &six.sin6_addr, gid.size());
    return gid;
  }
  if (address.ss_family != AF_INET) {
    return Status(Code::kUnavailable, "the connection has no address of IP");
  }
  sockaddr_in four = {};
  std::memcpy(&four, &address, sizeof four);
  gid[10] = gid[11] = 0xff;
  std::memcpy(gid.data() + 12, &four.sin_addr, sizeof four.sin_addr);
  return gid;
}

}  // namespace

Result<Gid> address_of(int socket) { return gid_of(socket, getsockname); }
Result<Gid> peer_address_of(int socket) { return gid_of(socket, getpeername); }

}  // namespace gpurun::transport::rdma
