// PCI devices: the PCI devices of this machine, and how far two of them are from each other.
//
// Facts are those of sysfs-bus-pci and sysfs-devices-node of the kernel's ABI documentation.
// Distances have the names of `nvidia-smi topo -m`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/system_files.h"

namespace gpurun {

struct PciDevice {
  std::string address;             // "0000:3b:00.0".
  std::vector<std::string> route;  // From the root complex, "pci0000:3a", to the device itself.
  unsigned vendor = 0, device = 0;
  unsigned kind = 0;   // The class code, as 0x030200.
  int node = -1;       // NUMA node. -1: the kernel knows none.
  std::string cpus;    // Processors near it, as "0-15". Empty: unknown.
  std::string driver;  // Empty: none.
};

// Sorted by address.
std::vector<PciDevice> pci_devices(const SystemFiles& files);
// Nothing: no such device, or `path` (as /sys/class/net/eth0/device) is not one of PCI.
std::optional<PciDevice> pci_device_at(const SystemFiles& files, const std::string& path);

// NVIDIA's display and 3D controllers.
bool is_nvidia_gpu(const PciDevice& device);

enum class Distance {
  kSame,        // X: one device.
  kSwitch,      // PIX: at most one PCIe bridge on each side, or functions of one card.
  kSwitches,    // PXB: more bridges, and no host bridge.
  kHostBridge,  // PHB: a host bridge.
  kNode,        // NODE: host bridges of one NUMA node.
  kSystem,      // SYS: NUMA nodes, or the machine knows no node.
};
const char* distance_word(Distance distance);
// The same as nvmlGpuTopologyLevel_t (NVML API Reference): 0, 10, 20, 30, 40 or 50.
int nvml_level(Distance distance);
Distance distance_between(const PciDevice& one, const PciDevice& other);

}  // namespace gpurun
