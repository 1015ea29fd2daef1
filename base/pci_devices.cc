// PCI devices: a device's place in the tree of bridges is the path that its link in sysfs leads to.
#include "base/pci_devices.h"

#include <algorithm>
#include <sstream>

namespace gpurun {
namespace {

constexpr unsigned kNvidia = 0x10de;
constexpr unsigned kDisplay = 0x03;

// "0000:3b:00.0".
bool is_address(const std::string& name) {
  return name.size() >= 12 && name[name.size() - 2] == '.' && name[name.size() - 5] == ':' &&
         name[name.size() - 8] == ':';
}

// The parts of "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0" from the root complex on. Other
// kinds of devices may precede it, and none follows.
std::vector<std::string> route_of(const std::string& path) {
  std::vector<std::string> route;
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '/');) {
    if (route.empty() ? part.rfind("pci", 0) == 0 && part.find(':') != std::string::npos
                      : is_address(part)) {
      route.push_back(part);
    } else if (!route.empty()) {
      break;
    }
  }
  return route;
}

unsigned number_of(const SystemFiles& files, const std::string& path) {
  return static_cast<unsigned>(files.number(path).value_or(0));
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The address without its function.
std::string slot_of(const PciDevice& device) {
  return device.address.substr(0, device.address.rfind('.'));
}

}  // namespace

std::optional<PciDevice> pci_device_at(const SystemFiles& files, const std::string& path) {
  const std::string place = files.target(path);
  PciDevice device;
  device.route = route_of(place);
  if (device.route.size() < 2) return std::nullopt;
  device.address = device.route.back();
  // A network device of virtio is a child of its PCI device.
  const std::string folder = place.substr(0, place.find(device.address) + device.address.size());
  device.vendor = number_of(files, folder + "/vendor");
  device.device = number_of(files, folder + "/device");
  device.kind = number_of(files, folder + "/class");
  device.node = static_cast<int>(files.number(folder + "/numa_node").value_or(-1));
  device.cpus = files.text(folder + "/local_cpulist").value_or("");
  device.driver = last_part(files.target(folder + "/driver"));
  return device;
}

std::vector<PciDevice> pci_devices(const SystemFiles& files) {
  std::vector<PciDevice> devices;
  const std::string all = "/sys/bus/pci/devices";
  for (const std::string& name : files.entries(all)) {
    if (auto device = pci_device_at(files, all + "/" + name)) devices.push_back(*std::move(device));
  }
  return devices;
}

bool is_nvidia_gpu(const PciDevice& device) {
  return device.vendor == kNvidia && device.kind >> 16 == kDisplay;
}

const char* distance_word(Distance distance) {
  switch (distance) {
    case Distance::kSame:
      return "X";
    case Distance::kSwitch:
      return "PIX";
    case Distance::kSwitches:
      return "PXB";
    case Distance::kHostBridge:
      return "PHB";
    case Distance::kNode:
      return "NODE";
    default:
      return "SYS";
  }
}

int nvml_level(Distance distance) { return 10 * static_cast<int>(distance); }

Distance distance_between(const PciDevice& one, const PciDevice& other) {
  if (one.address == other.address) return Distance::kSame;
  if (slot_of(one) == slot_of(other)) return Distance::kSwitch;
  const auto ends =
      std::mismatch(one.route.begin(), one.route.end(), other.route.begin(), other.route.end());
  const auto shared = ends.first - one.route.begin();
  if (shared == 0) {
    return one.node >= 0 && one.node == other.node ? Distance::kNode : Distance::kSystem;
  }
  if (shared == 1) return Distance::kHostBridge;
  // Bridges below the last shared one, on each side.
  const auto ours = one.route.end() - ends.first - 1;
  const auto theirs = other.route.end() - ends.second - 1;
  return ours <= 1 && theirs <= 1 ? Distance::kSwitch : Distance::kSwitches;
}

}  // namespace gpurun
