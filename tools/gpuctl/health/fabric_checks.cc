// Fabric checks: none of them opens a device.
#include "tools/gpuctl/health/fabric_checks.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "base/pci_devices.h"
#include "tools/gpuctl/machine/gpudirect.h"
#include "tools/gpuctl/machine/kernel_modules.h"
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
  bool trusted;  // The user trusts a fabric.
  bool works;    // A port that the user trusts and selects is active, and has an address.
};

bool holds(const std::vector<std::string>& list, const VerbsPort& port) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& each) {
    return each == "*" || each == port.device || each == port.name();
  });
}

bool works(const VerbsPort& port, const transport::rdma::AllowedPorts& allowed) {
  return port.active() && port.gids > 0 && holds(allowed.trusted, port) &&
         (allowed.restricted.empty() || holds(allowed.restricted, port));
}

Check fault(const Fabric& fabric, std::string name, std::string text, std::string fix) {
  return fabric.trusted && !fabric.works
             ? failed(std::move(name), std::move(text), std::move(fix))
             : warning(std::move(name), std::move(text), std::move(fix));
}

// Such a module is part of the kernel, and not in /proc/modules. Its folder in /sys/module exists
// if it has parameters or a version.
bool is_built_in(const SystemFiles& files, const std::string& name) {
  if (module_started_as(files, name) != 0) return false;
  if (files.exists("/sys/module/" + name) || files.exists("/sys/bus/pci/drivers/" + name)) {
    return true;
  }
  const std::string release = files.text("/proc/sys/kernel/osrelease").value_or("");
  const std::string all =
      files.text("/lib/modules/" + release + "/modules.builtin").value_or("") + "\n";
  return all.find("/" + name + ".ko\n") != std::string::npos;
}

// gpurun needs libibverbs alone. NCCL and UCX open librdmacm.
Check check_libraries(const Fabric& fabric, const VerbsLibraries& libraries) {
  const char* name = "verbs-library";
  if (!libraries.verbs.empty()) {
    return ok(name, libraries.verbs + " loads" +
                        (libraries.connection_manager.empty()
                             ? ". librdmacm.so.1 is missing, which gpurun does not need"
                             : ", and " + libraries.connection_manager) +
                        ". The devices' providers were not looked for");
  }
  if (fabric.devices.empty()) return not_applicable(name, std::string(kNoDevice));
  const std::string text =
      "libibverbs.so.1 is missing, and " + fabric.devices.front().name + " needs it";
  const std::string fix =
      "apt-get install libibverbs1 ibverbs-providers, or dnf install libibverbs";
  return fabric.trusted ? failed(name, text, fix) : warning(name, text, fix);
}

std::string describe(const VerbsPort& port) {
  std::string text = port.name() + " " + port.state + ", " + port.link_layer + ", " + port.rate +
                     ", " + std::to_string(port.gids) + (port.gids == 1 ? " GID" : " GIDs");
  if (port.link_layer == "Ethernet") text += port.roce_v2 ? ", RoCE v2" : ", RoCE v1 only";
  if (port.mtu > 0) text += ", " + port.net_device + " has MTU " + std::to_string(port.mtu);
  return text;
}

void add_port(const Fabric& fabric, const VerbsPort& port, Checks* checks) {
  const char* name = "verbs-port";
  if (!port.active()) {
    checks->push_back(fault(fabric, name, describe(port),
                            "connect the cable, set its network device up by ip link set DEVICE "
                            "up, and start a subnet manager on InfiniBand"));
    return;
  }
  if (port.gids == 0) {
    checks->push_back(fault(fabric, name, describe(port) + ": without a GID no peer can address it",
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
  for (const VerbsPort& port : fabric.ports) add_port(fabric, port, checks);
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
  checks->push_back(fault(fabric, "verbs-port",
                          "no RDMA driver serves the device at " + hardware->address,
                          "modprobe " + module));
}

// The network device of a PVRDMA port with an address. Empty: there is no such port.
std::string pvrdma_net_device(const Fabric& fabric) {
  for (const VerbsDevice& device : fabric.devices) {
    if (!device.pci || device.pci->vendor != kVmware || device.pci->device != kPvrdma) continue;
    for (const VerbsPort& port : fabric.ports) {
      if (port.device == device.name && port.gids > 0 && !port.net_device.empty()) {
        return port.net_device;
      }
    }
  }
  return {};
}

Check check_pvrdma(const Fabric& fabric) {
  const char* name = "pvrdma-module";
  const std::size_t own = module_started_as(fabric.files, "vmw_pvrdma");
  if (own == 0 && !is_built_in(fabric.files, "vmw_pvrdma")) {
    return not_applicable(name, "the module vmw_pvrdma is not loaded");
  }
  if (const std::string net = pvrdma_net_device(fabric); !net.empty()) {
    return ok(name, "the port of vmw_pvrdma has the network device " + net);
  }
  const std::string again =
      "modprobe -r vmw_pvrdma; modprobe vmxnet3; modprobe vmw_pvrdma. This ends the RDMA "
      "connections of the machine";
  for (const char* first : {"vmxnet3", "ib_uverbs"}) {
    const std::size_t before = module_started_as(fabric.files, first);
    if (before == 0 && !is_built_in(fabric.files, first)) {
      return fault(fabric, name, std::string("vmw_pvrdma is loaded, and it needs ") + first, again);
    }
    if (own != 0 && before > own) {
      return fault(
          fabric, name,
          std::string("vmw_pvrdma started before ") + first + ", so its port has no network device",
          again +
              ". For the next start write 'softdep vmw_pvrdma pre: vmxnet3 ib_uverbs' "
              "into /etc/modprobe.d/gpurun-rdma.conf");
    }
  }
  if (own == 0)
    return not_applicable(name, "vmw_pvrdma is built in, and started in an unknown order");
  return ok(name, "vmxnet3 and ib_uverbs started before vmw_pvrdma");
}

Check check_peer_memory(const Fabric& fabric) {
  const char* name = "peer-memory";
  const GpuDirect found = gpudirect(fabric.files);
  const std::string text = gpudirect_text(found);
  if (!found.has_devices) return not_applicable(name, text);
  if (found.possible()) return ok(name, "GPUDirect is " + text + ". No transfer was tried");
  return warning(name, text,
                 "install NVIDIA's open kernel modules on Linux 5.12 or later, or modprobe "
                 "nvidia_peermem, for which the network driver must have peer memory");
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

// What the configuration of PCI devices says about traffic between peers.
struct PeerTraffic {
  std::vector<std::string> redirecting;  // Bridges.
  std::vector<std::string> translating;  // Devices.
  bool readable = false;
  bool shared = false;  // Two peers are below one bridge.
};

void add_once(std::vector<std::string>* all, const std::string& one) {
  if (std::find(all->begin(), all->end(), one) == all->end()) all->push_back(one);
}

// A device, and the bridges between it and the first `common` devices of its route.
void look_at(const Fabric& fabric, const PciDevice& device, std::size_t common,
             PeerTraffic* traffic) {
  for (std::size_t i = common; i < device.route.size(); ++i) {
    const std::string& address = device.route[i];
    const std::string space =
        fabric.files.bytes("/sys/bus/pci/devices/" + address + "/config").value_or("");
    if (space.size() > 0x100) traffic->readable = true;
    const std::size_t acs = capability(space, kAcs), ats = capability(space, kAts);
    const bool bridge = i + 1 < device.route.size();
    if (bridge && acs != 0 && (word_at(space, acs + 6, 2) & kAcsRedirects) != 0) {
      add_once(&traffic->redirecting, address);
    }
    if (!bridge && ats != 0 && (word_at(space, ats + 6, 2) & kAtsEnabled) != 0) {
      add_once(&traffic->translating, address);
    }
  }
}

// Traffic of peers that share no bridge passes the root complex whatever their bridges do. Bridges
// above the last common one do not see the traffic.
PeerTraffic peer_traffic(const Fabric& fabric) {
  PeerTraffic traffic;
  const std::vector<PciDevice> peers = peers_of(fabric);
  for (std::size_t i = 0; i < fabric.gpus.size(); ++i) {  // The first peers are the GPUs.
    for (std::size_t j = i + 1; j < peers.size(); ++j) {
      const std::vector<std::string>&one = peers[i].route, &other = peers[j].route;
      const auto parting = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
      const auto common = static_cast<std::size_t>(parting.first - one.begin());
      if (common < 2) continue;  // The root complex alone.
      traffic.shared = true;
      look_at(fabric, peers[i], common, &traffic);
      look_at(fabric, peers[j], common, &traffic);
    }
  }
  return traffic;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Check check_acs(const Fabric& fabric) {
  const char* name = "acs-ats";
  if (fabric.gpus.empty() || peers_of(fabric).size() < 2) return not_applicable(name, kNoPeers);
  const PeerTraffic traffic = peer_traffic(fabric);
  if (!traffic.shared) return not_applicable(name, "no two of them are below one PCIe bridge");
  if (!traffic.readable) {
    return not_applicable(name, "only root may read the configuration of PCI devices");
  }
  const std::string ats =
      traffic.translating.empty() ? "" : ". ATS is on for " + listed(traffic.translating);
  if (traffic.redirecting.empty()) {
    return ok(name, "no PCIe bridge redirects traffic between devices" + ats);
  }
  return warning(
      name,
      "PCIe bridges send traffic between devices through the processor: " +
          listed(traffic.redirecting) + ats,
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

Checks fabric_checks(const SystemFiles& files, const VerbsLibraries& libraries,
                     const transport::rdma::AllowedPorts& allowed) {
  Fabric fabric = {files,
                   verbs_devices(files),
                   verbs_ports(files),
                   pci_devices(files),
                   {},
                   !allowed.trusted.empty(),
                   false};
  fabric.works = std::any_of(fabric.ports.begin(), fabric.ports.end(),
                             [&](const VerbsPort& port) { return works(port, allowed); });
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
