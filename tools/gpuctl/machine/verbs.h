// Verbs: the RDMA devices and ports of this machine, and the libraries by which programs use them.
//
// Everything comes from /sys/class/infiniband (sysfs-class-infiniband of the kernel's ABI
// documentation). Nothing here needs a library, a header or a device node.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/pci_devices.h"
#include "base/system_files.h"

namespace gpurun::tools {

struct VerbsPort {
  std::string device;  // "mlx5_0".
  int number = 1;
  std::string state;       // "ACTIVE".
  std::string link_layer;  // "InfiniBand" or "Ethernet".
  std::string rate;        // "100 Gb/sec (4X EDR)".
  int gids = 0;            // GIDs that are not zero.
  bool roce_v2 = false;    // One of them is of RoCE v2.
  std::string net_device;  // The network device of its first GID. Empty: unknown.
  int mtu = 0;             // Of that device. 0: unknown.

  bool active() const { return state == "ACTIVE"; }
  std::string name() const { return device + ":" + std::to_string(number); }
};

std::vector<VerbsPort> verbs_ports(const SystemFiles& files);

struct VerbsDevice {
  std::string name;              // "mlx5_0".
  std::optional<PciDevice> pci;  // Nothing: a device in software, as rxe.
};
std::vector<VerbsDevice> verbs_devices(const SystemFiles& files);

// The speed of a port, in Mbit/s, by the text of its rate: "100 Gb/sec (4X EDR)". 0: unknown, or
// the port of a device with an invented speed (route.h).
double port_mbit(const SystemFiles& files, const std::string& name);

// The file behind a library's name, as "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0". Empty:
// the loader does not find it. The library stays loaded.
std::string loaded_from(const char* library, const char* function);

}  // namespace gpurun::tools
