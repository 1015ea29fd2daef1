// Names: compares paths with the list, and writes the files' texts as NVIDIA's kernel driver does.
#include "client/device_files/names.h"

#include <charconv>
#include <cstdio>

namespace gpurun::client::device_files {
namespace {

constexpr std::string_view kDevices = "/dev/";
constexpr std::string_view kGpuPrefix = "nvidia";
constexpr std::string_view kDriver = "/proc/driver/nvidia";
constexpr std::string_view kPci = "/sys/bus/pci/devices/";
// "0000:01:00.0"
constexpr std::size_t kAddressBytes = 12;
constexpr unsigned kControlMinor = 255;

bool take(std::string_view* text, std::string_view prefix) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

std::string address_of(const driver_abi::NvmlDevice& device) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", device.pci_domain, device.pci_bus,
                device.pci_device);
  return text;
}

Entry device_entry(std::string_view name, const Lease& lease) {
  if (!take(&name, kGpuPrefix)) return {};
  const bool special = name == "ctl" || name == "-uvm";
  if (special && lease.device_count() == 0) return {};
  if (name == "ctl") return {Name::kControl};
  if (name == "-uvm") return {Name::kManagedMemory};
  // "nvidia00" is no device's name.
  if (name.empty() || (name.size() > 1 && name[0] == '0')) return {};
  unsigned number = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) return {};
  return number < lease.device_count() ? Entry{Name::kGpu, number} : Entry{};
}

// The GPU with that PCI address.
bool find_gpu(std::string_view address, const Lease& lease, unsigned* index) {
  if (address.size() != kAddressBytes) return false;
  const unsigned count = lease.described_count();
  for (unsigned gpu = 0; gpu < count; ++gpu) {
    driver_abi::NvmlDevice device{};
    if (!lease.describe(gpu, &device) || address_of(device) != address) continue;
    *index = gpu;
    return true;
  }
  return false;
}

Entry driver_entry(std::string_view rest, const Lease& lease) {
  if (lease.device_count() == 0) return {};
  if (rest.empty() || rest == "/") return {Name::kDriverFolder};
  if (rest == "/version") return {Name::kVersion};
  if (!take(&rest, "/gpus")) return {};
  if (rest.empty() || rest == "/") return {Name::kGpusFolder};
  if (!take(&rest, "/")) return {};
  const std::string_view address = rest.substr(0, kAddressBytes);
  rest.remove_prefix(address.size());
  const bool folder = rest.empty() || rest == "/";
  unsigned gpu = 0;
  if (!folder && rest != "/information") return {};
  if (!find_gpu(address, lease, &gpu)) return {};
  return {folder ? Name::kGpuFolder : Name::kInformation, gpu};
}

// A program that knows a GPU's address has it from the driver. Others look through the addresses of
// this machine, which must attach nothing.
Entry pci_entry(std::string_view rest, const Lease& lease) {
  const std::string_view address = rest.substr(0, kAddressBytes);
  rest.remove_prefix(address.size());
  unsigned gpu = 0;
  if (rest != "/numa_node" || lease.device_count() == 0 || !lease.attached()) return {};
  return find_gpu(address, lease, &gpu) ? Entry{Name::kNumaNode, gpu} : Entry{};
}

std::string information_of(const driver_abi::NvmlDevice& device, unsigned gpu) {
  char uuid[40];
  char* end = uuid;
  for (unsigned at = 0; at < 16; ++at) {
    if (at == 4 || at == 6 || at == 8 || at == 10) *end++ = '-';
    end += std::snprintf(end, 3, "%02x", device.uuid[at]);
  }
  std::string text("Model: \t\t ");
  text.append(device.name).append("\nIRQ:   \t\t 0\nGPU UUID: \t GPU-").append(uuid);
  text.append("\nVideo BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\nBus Location: \t ");
  text.append(address_of(device)).append("\nDevice Minor: \t ").append(std::to_string(gpu));
  return text + "\nGPU Excluded:\t No\n";
}

}  // namespace

Kind Entry::kind() const {
  switch (name) {
    case Name::kGpu:
    case Name::kControl:
    case Name::kManagedMemory:
      return Kind::kDevice;
    case Name::kDriverFolder:
    case Name::kGpusFolder:
    case Name::kGpuFolder:
      return Kind::kFolder;
    case Name::kNone:
    case Name::kVersion:
    case Name::kInformation:
    case Name::kNumaNode:
      break;
  }
  return Kind::kFile;
}

Entry find_entry(std::string_view path, const Lease& lease) {
  if (take(&path, kDevices)) return device_entry(path, lease);
  if (take(&path, kDriver)) return driver_entry(path, lease);
  if (take(&path, kPci)) return pci_entry(path, lease);
  return {};
}

unsigned minor_number(const Entry& device) {
  return device.name == Name::kControl ? kControlMinor : device.gpu;
}

std::string content_of(const Entry& file, const Lease& lease) {
  driver_abi::NvmlDevice device{};
  switch (file.name) {
    case Name::kVersion:
      // TensorFlow reads the version between "Kernel Module  " and the next space.
      if (lease.described_count() == 0) return {};
      return std::string("NVRM version: NVIDIA UNIX x86_64 Kernel Module  ") +
             lease.driver_version() + "  gpurun\nGCC version:  none\n";
    case Name::kInformation:
      return lease.describe(file.gpu, &device) ? information_of(device, file.gpu) : std::string();
    case Name::kNumaNode:
      return "-1\n";  // As the kernel's for a device that is near to no node.
    default:
      return {};
  }
}

std::vector<Item> items_of(std::string_view folder, const Lease& lease) {
  std::vector<Item> items;
  if (folder == "/dev" || folder == kDevices) {
    const unsigned count = lease.device_count();
    for (unsigned gpu = 0; gpu < count; ++gpu) {
      items.push_back({"nvidia" + std::to_string(gpu), Kind::kDevice});
    }
    if (count > 0)
      items.insert(items.end(), {{"nvidia-uvm", Kind::kDevice}, {"nvidiactl", Kind::kDevice}});
    return items;
  }
  switch (find_entry(folder, lease).name) {
    case Name::kDriverFolder:
      return {{"gpus", Kind::kFolder}, {"version", Kind::kFile}};
    case Name::kGpusFolder:
      for (unsigned gpu = 0; gpu < lease.described_count(); ++gpu) {
        driver_abi::NvmlDevice device{};
        if (lease.describe(gpu, &device)) items.push_back({address_of(device), Kind::kFolder});
      }
      return items;
    case Name::kGpuFolder:
      return {{"information", Kind::kFile}};
    default:
      return {};
  }
}

}  // namespace gpurun::client::device_files
