// Net devices: the network devices of this machine, as /sys/class/net shows them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/pci_devices.h"
#include "base/system_files.h"

namespace gpurun::tools {

struct NetDevice {
  std::string name;              // "eth0".
  std::string state;             // "up", "down", "unknown".
  int mtu = 0;                   // 0: unknown.
  double mbit = 0;               // 0: unknown.
  std::optional<PciDevice> pci;  // Nothing: a virtual device.
};

// All of them, sorted by name. At most 256.
std::vector<NetDevice> net_devices(const SystemFiles& files);

}  // namespace gpurun::tools
