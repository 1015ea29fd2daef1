// Route: the network device that leads to a server, and its speed.
#pragma once

#include <optional>
#include <string>

#include "base/pci_devices.h"
#include "base/system_files.h"
#include "transport/rdma/allowed_ports.h"
#include "transport/sockets/address.h"

namespace gpurun::tools {

struct Route {
  std::string device;  // "eth0". Empty: unknown.
  double mbit = 0;     // 0: unknown, as for loopback and virtual devices.
  // This machine's address for that way. Nothing: unknown.
  std::optional<transport::rdma::Gid> local = {};
};

// Asks the kernel for the way to `address`. It sends nothing.
Route route_to(const transport::sockets::SocketAddress& address,
               const SystemFiles& files = SystemFiles());

// The speed of a PCI device, or of the only one below a VLAN, bridge or bond, in Mbit/s. 0:
// unknown. Other devices report an invented speed. An emulated PCI device of another vendor than
// VirtIO and VMware cannot be told from hardware.
double device_mbit(const SystemFiles& files, const std::string& device);

// False for devices with an invented speed. Nothing: a device in software.
bool has_real_speed(const std::optional<PciDevice>& pci);

}  // namespace gpurun::tools
