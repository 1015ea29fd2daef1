// Verbs: ports as sysfs shows them.
#include "tools/gpuctl/machine/verbs.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "tools/gpuctl/machine/route.h"

namespace gpurun::tools {
namespace {

constexpr const char* kClass = "/sys/class/infiniband";

bool is_zero(const std::string& gid) { return gid.find_first_not_of("0:") == std::string::npos; }

// "4: ACTIVE" without the number.
std::string word_of(const std::string& state) {
  const std::size_t colon = state.find(": ");
  return colon == std::string::npos ? state : state.substr(colon + 2);
}

void add_gids(const SystemFiles& files, const std::string& folder, VerbsPort* port) {
  for (const std::string& index : files.entries(folder + "/gids")) {
    const std::string gid = files.text(folder + "/gids/" + index).value_or("");
    if (is_zero(gid)) continue;
    ++port->gids;
    const std::string attributes = folder + "/gid_attrs/";
    if (files.text(attributes + "types/" + index) == "RoCE v2") port->roce_v2 = true;
    if (!port->net_device.empty()) continue;
    port->net_device = files.text(attributes + "ndevs/" + index).value_or("");
  }
  if (port->net_device.empty()) return;
  port->mtu =
      static_cast<int>(files.number("/sys/class/net/" + port->net_device + "/mtu").value_or(0));
}

}  // namespace

std::vector<VerbsPort> verbs_ports(const SystemFiles& files) {
  std::vector<VerbsPort> ports;
  for (const std::string& device : files.entries(kClass)) {
    const std::string folder = std::string(kClass) + "/" + device + "/ports";
    for (const std::string& number : files.entries(folder)) {
      const std::string own = folder + "/" + number;
      VerbsPort port;
      port.device = device;
      port.number = std::atoi(number.c_str());
      port.state = word_of(files.text(own + "/state").value_or("unknown"));
      port.link_layer = files.text(own + "/link_layer").value_or("unknown");
      port.rate = files.text(own + "/rate").value_or("unknown");
      add_gids(files, own, &port);
      ports.push_back(std::move(port));
    }
  }
  return ports;
}

std::vector<VerbsDevice> verbs_devices(const SystemFiles& files) {
  std::vector<VerbsDevice> devices;
  for (const std::string& name : files.entries(kClass)) {
    devices.push_back({name, pci_device_at(files, std::string(kClass) + "/" + name + "/device")});
  }
  return devices;
}

double port_mbit(const SystemFiles& files, const std::string& name) {
  for (const VerbsPort& port : verbs_ports(files)) {
    if (port.name() != name) continue;
    const auto pci = pci_device_at(files, std::string(kClass) + "/" + port.device + "/device");
    return has_real_speed(pci) ? 1000 * std::strtod(port.rate.c_str(), nullptr) : 0;
  }
  return 0;
}

std::string loaded_from(const char* library, const char* function) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  void* address = handle == nullptr ? nullptr : dlsym(handle, function);
  Dl_info about = {};
  if (address == nullptr || dladdr(address, &about) == 0 || about.dli_fname == nullptr) return {};
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(about.dli_fname, nullptr),
                                                         &std::free);
  return real == nullptr ? about.dli_fname : real.get();
}

}  // namespace gpurun::tools
