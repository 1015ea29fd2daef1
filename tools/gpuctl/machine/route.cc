// Route: a datagram socket that is connected shows the address of this machine for that way.
#include "tools/gpuctl/machine/route.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "base/unique_fd.h"

namespace gpurun::tools {
namespace {

using transport::sockets::SocketAddress;

// True when both are the same address, whatever their ports.
bool same_host(const sockaddr* one, const SocketAddress& other) {
  if (one == nullptr || one->sa_family != other.family()) return false;
  if (one->sa_family == AF_INET) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in*>(one)->sin_addr,
                       &reinterpret_cast<const sockaddr_in*>(other.get())->sin_addr,
                       sizeof(in_addr)) == 0;
  }
  return one->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(one)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(other.get())->sin6_addr,
                     sizeof(in6_addr)) == 0;
}

std::string device_of(const SocketAddress& own) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  std::string name;
  for (const ifaddrs* each = all; each != nullptr && name.empty(); each = each->ifa_next) {
    if (same_host(each->ifa_addr, own)) name = each->ifa_name;
  }
  freeifaddrs(all);
  return name;
}

}  // namespace

double device_mbit(const SystemFiles& files, const std::string& device) {
  const auto mbit = files.number("/sys/class/net/" + device + "/speed");
  return mbit && *mbit > 0 ? static_cast<double>(*mbit) : 0;  // -1: no carrier, or no speed.
}

Route route_to(const SocketAddress& address, const SystemFiles& files) {
  Route route;
  const UniqueFd fd(socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || connect(fd.get(), address.get(), address.byte_count) != 0) return route;
  const Result<SocketAddress> own = transport::sockets::local_address(fd.get());
  if (!own.ok()) return route;
  route.device = device_of(*own);
  if (!route.device.empty()) route.mbit = device_mbit(files, route.device);
  return route;
}

}  // namespace gpurun::tools
