// Route: a datagram socket that is connected shows the address of this machine for that way.
#include "tools/gpuctl/machine/route.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "base/unique_fd.h"
#include "transport/rdma/fabric.h"

namespace gpurun::tools {
namespace {

using transport::sockets::SocketAddress;

constexpr unsigned kVirtioVendor = 0x1af4, kVmwareVendor = 0x15ad;
// A VLAN of a bridge of a bond of devices.
constexpr int kLowerDevicesMax = 3;

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

double mbit_below(const SystemFiles& files, const std::string& device, int depth) {
  const std::string folder = "/sys/class/net/" + device;
  if (has_real_speed(pci_device_at(files, folder + "/device"))) {
    const auto mbit = files.number(folder + "/speed");
    return mbit && *mbit > 0 ? static_cast<double>(*mbit) : 0;  // -1: no carrier, or no speed.
  }
  double found = 0;
  if (depth == 0) return found;
  const std::string prefix = "lower_";
  for (const std::string& name : files.entries(folder)) {
    if (name.rfind(prefix, 0) != 0) continue;
    const double mbit = mbit_below(files, name.substr(prefix.size()), depth - 1);
    if (mbit <= 0) continue;
    if (found > 0) return 0;  // A bond's rule decides how much of each a connection gets.
    found = mbit;
  }
  return found;
}

}  // namespace

// Drivers of virtual devices invent a speed: veth 10000, vmxnet3 10000, virtio what its host says.
bool has_real_speed(const std::optional<PciDevice>& pci) {
  return pci && pci->vendor != kVirtioVendor && pci->vendor != kVmwareVendor;
}

double device_mbit(const SystemFiles& files, const std::string& device) {
  return mbit_below(files, device, kLowerDevicesMax);
}

Route route_to(const SocketAddress& address, const SystemFiles& files) {
  Route route;
  const UniqueFd fd(socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || connect(fd.get(), address.get(), address.byte_count) != 0) return route;
  const Result<SocketAddress> own = transport::sockets::local_address(fd.get());
  if (!own.ok()) return route;
  route.device = device_of(*own);
  if (!route.device.empty()) route.mbit = device_mbit(files, route.device);
  if (const auto local = transport::rdma::address_of(fd.get()); local.ok()) route.local = *local;
  return route;
}

}  // namespace gpurun::tools
