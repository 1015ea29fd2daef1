// gpuctl topo: how far the GPUs and network devices of this machine are from each other, and which
// processors are near each. Its words are those of `nvidia-smi topo -m`.
#pragma once

#include <string>
#include <vector>

#include "base/pci_devices.h"
#include "base/system_files.h"

namespace gpurun::tools {

struct TopoDevice {
  std::string label;  // "GPU0", "NIC0".
  std::string name;   // Of a NIC: "mlx5_0", or "eth0" for a device without verbs.
  PciDevice pci;
  bool rdma = false;  // It has verbs.
};

// NVIDIA GPUs in the order of their addresses, as NVML numbers them, then RDMA devices, then other
// network devices that have a PCI device.
std::vector<TopoDevice> topo_devices(const SystemFiles& files);

std::string topo_text(const std::vector<TopoDevice>& devices);
std::string topo_json(const std::vector<TopoDevice>& devices);

// Prints one of them. Returns the exit status, 0.
int show_topo(bool as_json);

}  // namespace gpurun::tools
