// gpuctl topo: a matrix of distances in the tree of PCIe bridges.
#include "tools/gpuctl/topo/topo.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/gpuctl/machine/net_devices.h"
#include "tools/gpuctl/machine/verbs.h"

namespace gpurun::tools {
namespace {

using nlohmann::json;

constexpr const char* kLegend =
    "\nLegend:\n\n"
    "  X    = the device itself\n"
    "  SYS  = across the link between NUMA nodes, or the machine shows no node\n"
    "  NODE = across PCIe host bridges within a NUMA node\n"
    "  PHB  = across one PCIe host bridge\n"
    "  PXB  = across several PCIe bridges, and no host bridge\n"
    "  PIX  = across at most one PCIe bridge on each side, or functions of one card\n\n"
    "NVLink is not shown. nvidia-smi topo -m shows it.\n";

bool is_listed(const std::vector<TopoDevice>& devices, const PciDevice& pci) {
  return std::any_of(devices.begin(), devices.end(),
                     [&](const TopoDevice& each) { return each.pci.address == pci.address; });
}

std::string padded(const std::string& text, std::size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text;
}

std::string node_text(const PciDevice& pci) {
  return pci.node < 0 ? "N/A" : std::to_string(pci.node);
}

std::string cpus_text(const PciDevice& pci) { return pci.cpus.empty() ? "N/A" : pci.cpus; }

// The RDMA device by which a session with this GPU goes first, where several lead to its client
// (transport/rdma/port_order.h). nullptr: there is no such device.
const TopoDevice* nearest_rdma(const std::vector<TopoDevice>& devices, const TopoDevice& gpu) {
  const TopoDevice* nearest = nullptr;
  for (const TopoDevice& each : devices) {
    if (!each.rdma || !is_nvidia_gpu(gpu.pci)) continue;
    if (nearest == nullptr ||
        distance_between(gpu.pci, each.pci) < distance_between(gpu.pci, nearest->pci)) {
      nearest = &each;
    }
  }
  return nearest;
}

// Removes the blanks at the end of a line.
std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::vector<TopoDevice> topo_devices(const SystemFiles& files) {
  std::vector<TopoDevice> devices;
  for (const PciDevice& each : pci_devices(files)) {
    if (!is_nvidia_gpu(each)) continue;
    devices.push_back({"GPU" + std::to_string(devices.size()), "", each, false});
  }
  std::size_t nics = 0;
  const auto add = [&](const std::string& name, const std::optional<PciDevice>& pci, bool rdma) {
    if (!pci || is_listed(devices, *pci)) return;
    devices.push_back({"NIC" + std::to_string(nics++), name, *pci, rdma});
  };
  for (const VerbsDevice& each : verbs_devices(files)) add(each.name, each.pci, true);
  for (const NetDevice& each : net_devices(files)) add(each.name, each.pci, false);
  return devices;
}

std::string topo_text(const std::vector<TopoDevice>& devices) {
  if (devices.empty()) {
    return "this machine shows no NVIDIA GPU, and no network device that has a PCI device\n";
  }
  std::size_t cpus_width = 12;  // "CPU Affinity".
  for (const TopoDevice& each : devices) {
    cpus_width = std::max(cpus_width, cpus_text(each.pci).size());
  }
  std::string line = padded("", 8);
  for (const TopoDevice& each : devices) line += padded(each.label, 8);
  std::string text = trimmed(line + padded("CPU Affinity", cpus_width + 2) + "NUMA Affinity");
  for (const TopoDevice& row : devices) {
    line = padded(row.label, 8);
    for (const TopoDevice& column : devices) {
      line += padded(distance_word(distance_between(row.pci, column.pci)), 8);
    }
    text += trimmed(line + padded(cpus_text(row.pci), cpus_width + 2) + node_text(row.pci));
  }
  text += kLegend;
  text += "\nDevices:\n\n";
  for (const TopoDevice& each : devices) {
    text += "  " + each.label + ": " + each.pci.address +
            (each.name.empty() ? "" : ", " + each.name) + "\n";
  }
  std::string preferred;
  for (const TopoDevice& gpu : devices) {
    const TopoDevice* const nearest = nearest_rdma(devices, gpu);
    if (nearest == nullptr) continue;
    preferred += "  " + gpu.label + ": " + nearest->label + ", " + nearest->name + " (" +
                 distance_word(distance_between(gpu.pci, nearest->pci)) + ")\n";
  }
  if (!preferred.empty())
    text += "\nRDMA device that sessions prefer, the nearest:\n\n" + preferred;
  return text;
}

std::string topo_json(const std::vector<TopoDevice>& devices) {
  json all = json::array();
  for (const TopoDevice& row : devices) {
    json distances = json::object();
    for (const TopoDevice& column : devices) {
      distances[column.label] = distance_word(distance_between(row.pci, column.pci));
    }
    const TopoDevice* const nearest = nearest_rdma(devices, row);
    all.push_back({{"device", row.label},
                   {"preferred_rdma_device", nearest == nullptr ? json() : json(nearest->label)},
                   {"name", row.name.empty() ? json() : json(row.name)},
                   {"address", row.pci.address},
                   {"cpus", row.pci.cpus.empty() ? json() : json(row.pci.cpus)},
                   {"numa_node", row.pci.node < 0 ? json() : json(row.pci.node)},
                   {"distances", distances}});
  }
  return json({{"devices", all}}).dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

int show_topo(bool as_json) {
  const std::vector<TopoDevice> devices = topo_devices(SystemFiles());
  std::fputs((as_json ? topo_json(devices) : topo_text(devices)).c_str(), stdout);
  return 0;
}

}  // namespace gpurun::tools
