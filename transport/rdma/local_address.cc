// address_of(): getsockname(2), as a GID.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "transport/rdma/fabric.h"

namespace gpurun::transport::rdma {

Result<Gid> address_of(int socket) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
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

}  // namespace gpurun::transport::rdma
