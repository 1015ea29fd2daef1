// Fabric checks: none of them opens a device.
#include "tools/gpuctl/health/fabric_checks.h"

#include <algorithm>
#include <optional>

#include "base/pci_devices.h"
#include "tools/gpuctl/machine/known_transports.h"
#include "tools/gpuctl/machine/verbs.h"

namespace gpurun::tools {
namespace {

constexpr unsigned kVmware = 0x15ad, kPvrdma = 0x0820;
constexpr unsigned kMellanox = 0x15b3;
constexpr const char* kNoPeers = "it takes an NVIDIA GPU, and another one or an RDMA device";
constexpr const char* kNoDevice = "this machine has no RDMA device";
// An RDMA packet of 4096 bytes, the largest, and its headers.
constexpr int kMtuForLargestPacket = 4200;

struct Fabric {
  const SystemFiles& files;
  std::vector<VerbsDevice> devices;
  std::vector<VerbsPort> ports;
  std::vector<PciDevice> pci, gpus;
};

bool uses_verbs() {
  const auto& all = known_transports();
  return std::any_of(all.begin(), all.end(), [](const KnownTransport& each) {
    return std::string(each.name) == "rdma" && *each.missing == '\0';
  });
}

Check fault(std::string name, std::string text, std::string fix) {
  return uses_verbs() ? failed(std::move(name), std::move(text), std::move(fix))
                      : warning(std::move(name), std::move(text), std::move(fix));
}

// The place of a module in the order of starts, from 1. 0: it is not loaded. /proc/modules lists
// the module that started last first.
std::size_t started_as(const SystemFiles& files, const std::string& name) {
  const std::vector<std::string> lines = lines_of(files.text("/proc/modules").value_or(""));
  for (std::size_t at = 0; at < lines.size(); ++at) {
    if (lines[at].substr(0, lines[at].find(' ')) == name) return lines.size() - at;
  }
  return 0;
}

Check check_libraries(const Fabric& fabric, const VerbsLibraries& libraries) {
  const char* name = "verbs-library";
  const std::string missing = libraries.verbs.empty() ? "libibverbs.so.1" : "librdmacm.so.1";
  if (!libraries.verbs.empty() && !libraries.connection_manager.empty()) {
    return ok(name, "both load, and their providers were not looked for: " + libraries.verbs +
                        " and " + libraries.connection_manager);
  }
  if (fabric.devices.empty()) return not_applicable(name, std::string(kNoDevice));
  return fault(
      name, missing + " is missing, and " + fabric.devices.front().name + " needs it",
      "apt-get install libibverbs1 ibverbs-providers librdmacm1, or dnf install libibverbs "
      "librdmacm");
}

std::string describe(const VerbsPort& port) {
  std::string text = port.name() + " " + port.state + ", " + port.link_layer + ", " + port.rate +
                     ", " + std::to_string(port.gids) + (port.gids == 1 ? " GID" : " GIDs");
  if (port.link_layer == "Ethernet") text += port.roce_v2 ? ", RoCE v2" : ", RoCE v1 only";
  if (port.mtu > 0) text += ", " + port.net_device + " has MTU " + std::to_string(port.mtu);
  return text;
}

void add_port(const VerbsPort& port, Checks* checks) {
  const char* name = "verbs-port";
  if (!port.active()) {
    checks->push_back(fault(name, describe(port),
                            "connect the cable, set its network device up by ip link set DEVICE "
                            "up, and start a subnet manager on InfiniBand"));
    return;
  }
  if (port.gids == 0) {
    checks->push_back(fault(name, describe(port) + ": without a GID no peer can address it",
                            "give its network device an address by ip addr add"));
    return;
  }
  checks->push_back(ok(name, describe(port)));
  if (port.link_layer != "Ethernet" || port.mtu == 0) return;
  if (port.mtu >= kMtuForLargestPacket) {
    checks->push_back(ok("mtu", "the MTU of " + port.net_device +
                                    " allows RDMA packets of 4096 bytes. The way was not tried"));
    return;
  }
  checks->push_back(warning(
      "mtu",
      "MTU " + std::to_string(port.mtu) + " of " + port.net_device + " bounds RDMA packets to " +
          (port.mtu < 2200 ? "1024" : "2048") + " bytes, or fewer",
      "ip link set " + port.net_device + " mtu 9000, on both machines and all switches between"));
}

void add_ports(const Fabric& fabric, Checks* checks) {
  for (const VerbsPort& port : fabric.ports) add_port(port, checks);
  if (!fabric.ports.empty()) return;
  const auto hardware =
      std::find_if(fabric.pci.begin(), fabric.pci.end(), [](const PciDevice& each) {
        return each.vendor == kMellanox || (each.vendor == kVmware && each.device == kPvrdma);
      });
  if (hardware == fabric.pci.end()) {
    checks->push_back(not_applicable("verbs-port", kNoDevice));
    return;
  }
  const std::string module = hardware->vendor == kVmware ? "vmw_pvrdma" : "mlx5_ib";
  checks->push_back(fault("verbs-port", "no RDMA driver serves the device at " + hardware->address,
                          "modprobe " + module));
}

Check check_pvrdma(const Fabric& fabric) {
  const char* name = "pvrdma-module";
  const std::size_t own = started_as(fabric.files, "vmw_pvrdma");
  if (own == 0) return not_applicable(name, "the module vmw_pvrdma is not loaded");
  const std::string again = "modprobe -r vmw_pvrdma; modprobe vmxnet3; modprobe vmw_pvrdma";
  for (const char* first : {"vmxnet3", "ib_uverbs"}) {
    const std::size_t before = started_as(fabric.files, first);
    if (before == 0) {
      return fault(name, std::string("vmw_pvrdma is loaded, and it needs ") + first, again);
    }
    if (before > own) {
      return fault(
          name,
          std::string("vmw_pvrdma started before ") + first + ", so its port has no network device",
          again +
              ". For the next start write 'softdep vmw_pvrdma pre: vmxnet3 ib_uverbs' "
              "into /etc/modprobe.d/gpurun-rdma.conf");
    }
  }
  return ok(name, "vmxnet3 and ib_uverbs started before vmw_pvrdma");
}

Check check_peer_memory(const Fabric& fabric) {
  const char* name = "peer-memory";
  if (fabric.gpus.empty() || fabric.devices.empty()) {
    return not_applicable(name, "it takes an NVIDIA GPU and an RDMA device");
  }
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    if (started_as(fabric.files, module) != 0) {
      return ok(name, std::string(module) + " is loaded. No transfer was tried");
    }
  }
  return not_applicable(name,
                        "nvidia_peermem is not loaded. NVIDIA's open kernel modules need none, "
                        "because RDMA devices reach GPU memory by dma-buf");
}

// The type of the IOMMU group of a device: "identity", "DMA", "DMA-FQ". Empty: it has none.
std::string iommu_type(const SystemFiles& files, const PciDevice& device) {
  return files.text("/sys/bus/pci/devices/" + device.address + "/iommu_group/type").value_or("");
}

// GPUs, and network devices with verbs.
std::vector<PciDevice> peers_of(const Fabric& fabric) {
  std::vector<PciDevice> peers = fabric.gpus;
  for (const VerbsDevice& device : fabric.devices) {
    if (device.pci) peers.push_back(*device.pci);
  }
  return peers;
}

Check check_iommu(const Fabric& fabric) {
  const char* name = "iommu";
  const std::vector<PciDevice> peers = peers_of(fabric);
  if (fabric.gpus.empty() || peers.size() < 2) return not_applicable(name, kNoPeers);
  std::string translated;
  bool readable = false;
  for (const PciDevice& device : peers) {
    const std::string type = iommu_type(fabric.files, device);
    readable = readable || !type.empty();
    if (type.empty() || type == "identity") continue;
    translated += (translated.empty() ? "" : ", ") + device.address;
  }
  if (translated.empty() && !readable) {
    return not_applicable(name,
                          "the kernel shows no IOMMU groups. A virtual machine shows its own only");
  }
  if (translated.empty()) return ok(name, "no IOMMU translates for GPUs and RDMA devices");
  return warning(name,
                 "the IOMMU translates for " + translated +
                     ", so copies between devices go through the processor",
                 "boot the kernel with iommu=pt, if its devices need no isolation from each other");
}

unsigned word_at(const std::string& bytes, std::size_t at, std::size_t size) {
  unsigned value = 0;
  for (std::size_t i = size; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

// The offset of an extended capability in a device's configuration space (PCI Express Base
// Specification, 7.6.3). 0: it has none.
std::size_t capability(const std::string& space, unsigned wanted) {
  std::size_t at = 0x100;
  for (int i = 0; i < 64 && at >= 0x100 && at + 8 <= space.size(); ++i) {
    const unsigned header = word_at(space, at, 4);
    if ((header & 0xffff) == wanted) return at;
    at = header >> 20;
  }
  return 0;
}

// Access control of a bridge, and address translation of a device.
constexpr unsigned kAcs = 0x000d, kAts = 0x000f;
constexpr unsigned kAcsRedirects = 0x1c;  // Requests, completions, and upstream forwarding.
constexpr unsigned kAtsEnabled = 0x8000;

Check check_acs(const Fabric& fabric) {
  const char* name = "acs-ats";
  if (fabric.gpus.empty() || peers_of(fabric).size() < 2) return not_applicable(name, kNoPeers);
  std::string redirecting, translating;
  bool readable = false;
  for (const PciDevice& device : peers_of(fabric)) {
    for (std::size_t i = 1; i < device.route.size(); ++i) {
      const std::string& address = device.route[i];
      const std::string space =
          fabric.files.bytes("/sys/bus/pci/devices/" + address + "/config").value_or("");
      if (space.size() > 0x100) readable = true;
      const std::size_t acs = capability(space, kAcs), ats = capability(space, kAts);
      const bool bridge = i + 1 < device.route.size();
      if (bridge && acs != 0 && (word_at(space, acs + 6, 2) & kAcsRedirects) != 0 &&
          redirecting.find(address) == std::string::npos) {
        redirecting += (redirecting.empty() ? "" : ", ") + address;
      }
      if (!bridge && ats != 0 && (word_at(space, ats + 6, 2) & kAtsEnabled) != 0) {
        translating += (translating.empty() ? "" : ", ") + address;
      }
    }
  }
  if (!readable) return not_applicable(name, "only root may read the configuration of PCI devices");
  const std::string ats = translating.empty() ? "" : ". ATS is on for " + translating;
  if (redirecting.empty())
    return ok(name, "no PCIe bridge redirects traffic between devices" + ats);
  return warning(
      name, "PCIe bridges send traffic between devices through the processor: " + redirecting + ats,
      "turn ACS off in the firmware, or by setpci -s BRIDGE ECAP_ACS+6.w=0000 until the next "
      "start. "
      "Devices are then not isolated from each other, so not with virtual machines");
}

// The kernel's distance of two nodes, as in "10 21". 0: unknown.
int node_distance(const SystemFiles& files, int from, int to) {
  if (from < 0 || to < 0) return 0;
  const std::string row =
      files.text("/sys/devices/system/node/node" + std::to_string(from) + "/distance").value_or("");
  const char* at = row.c_str();
  for (int node = 0; *at != '\0'; ++node) {
    char* end = nullptr;
    const long value = std::strtol(at, &end, 10);
    if (end == at) return 0;
    if (node == to) return static_cast<int>(value);
    at = end;
  }
  return 0;
}

// The nearest RDMA device of each GPU.
void add_distances(const Fabric& fabric, Checks* checks) {
  const char* name = "nic-distance";
  bool compared = false;
  for (const PciDevice& gpu : fabric.gpus) {
    const VerbsDevice* nearest = nullptr;
    for (const VerbsDevice& device : fabric.devices) {
      if (!device.pci) continue;
      if (nearest == nullptr ||
          distance_between(gpu, *device.pci) < distance_between(gpu, *nearest->pci)) {
        nearest = &device;
      }
    }
    if (nearest == nullptr) continue;
    compared = true;
    const Distance distance = distance_between(gpu, *nearest->pci);
    std::string text =
        "GPU " + gpu.address + " and " + nearest->name + ": " + distance_word(distance);
    const int nodes = node_distance(fabric.files, gpu.node, nearest->pci->node);
    if (nodes > 0) text += ", NUMA distance " + std::to_string(nodes);
    if (distance == Distance::kSystem && (gpu.node < 0 || nearest->pci->node < 0)) {
      checks->push_back(
          not_applicable(name, text + ", but the kernel knows no NUMA nodes for both"));
      continue;
    }
    checks->push_back(distance < Distance::kSystem
                          ? ok(name, text)
                          : warning(name, text + ": copies cross the link between processors",
                                    "move the network device or the GPU to a slot of the same "
                                    "processor; gpuctl topo shows the slots"));
  }
  if (compared) return;
  checks->push_back(not_applicable(name, "it takes an NVIDIA GPU and an RDMA device"));
}

}  // namespace

VerbsLibraries find_verbs_libraries() {
  return {loaded_from("libibverbs.so.1", "ibv_get_device_list"),
          loaded_from("librdmacm.so.1", "rdma_create_event_channel")};
}

Checks fabric_checks(const SystemFiles& files, const VerbsLibraries& libraries) {
  Fabric fabric = {files, verbs_devices(files), verbs_ports(files), pci_devices(files), {}};
  std::copy_if(fabric.pci.begin(), fabric.pci.end(), std::back_inserter(fabric.gpus),
               is_nvidia_gpu);
  Checks checks = {check_libraries(fabric, libraries)};
  add_ports(fabric, &checks);
  checks.push_back(check_pvrdma(fabric));
  checks.push_back(check_peer_memory(fabric));
  checks.push_back(check_iommu(fabric));
  checks.push_back(check_acs(fabric));
  add_distances(fabric, &checks);
  return checks;
}

}  // namespace gpurun::tools
