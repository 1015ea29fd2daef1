// Net devices: one folder of sysfs for each.
#include "tools/gpuctl/machine/net_devices.h"

#include "tools/gpuctl/machine/route.h"

namespace gpurun::tools {
namespace {

// A machine with containers may have thousands of virtual devices.
constexpr std::size_t kNetDevicesMax = 256;

}  // namespace

std::vector<NetDevice> net_devices(const SystemFiles& files) {
  std::vector<NetDevice> devices;
  const std::string all = "/sys/class/net";
  for (const std::string& name : files.entries(all)) {
    if (devices.size() == kNetDevicesMax) break;
    const std::string folder = all + "/" + name;
    if (!files.exists(folder + "/mtu")) continue;  // "bonding_masters" is a file.
    NetDevice device;
    device.name = name;
    device.state = files.text(folder + "/operstate").value_or("unknown");
    device.mtu = static_cast<int>(files.number(folder + "/mtu").value_or(0));
    device.mbit = device_mbit(files, name);
    device.pci = pci_device_at(files, folder + "/device");
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace gpurun::tools
