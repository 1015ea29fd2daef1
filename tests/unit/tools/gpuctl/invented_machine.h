// InventedMachine: a folder that gpuctl reads in place of "/".
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "base/system_files.h"

namespace gpurun::tools {

class InventedMachine {
 public:
  InventedMachine() {
    char name[] = "/tmp/gpuctl-machine-XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("no folder for a machine");
    root_ = name;
  }
  ~InventedMachine() { std::filesystem::remove_all(root_); }
  InventedMachine(const InventedMachine&) = delete;
  InventedMachine& operator=(const InventedMachine&) = delete;

  SystemFiles files() const { return SystemFiles(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path, std::ios::binary) << text;
  }
  // A link with an absolute target within this machine.
  void link(const std::string& path, const std::string& target) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::filesystem::create_directories(root_ + target);
    std::filesystem::create_symlink(root_ + target, root_ + path);
  }

  // A PCI device below "/sys/devices/ROUTE", as "pci0000:3a/0000:3a:00.0/0000:3b:00.0". Returns its
  // folder.
  std::string pci(const std::string& route, const std::string& vendor, const std::string& device,
                  const std::string& kind, int node = 0) {
    const std::string folder = "/sys/devices/" + route;
    write(folder + "/vendor", vendor + "\n");
    write(folder + "/device", device + "\n");
    write(folder + "/class", kind + "\n");
    write(folder + "/numa_node", std::to_string(node) + "\n");
    write(folder + "/local_cpulist", node == 0 ? "0-15\n" : "16-31\n");
    link("/sys/bus/pci/devices/" + folder.substr(folder.rfind('/') + 1), folder);
    return folder;
  }
  std::string gpu(const std::string& route, int node = 0) {
    return pci(route, "0x10de", "0x2330", "0x030200", node);
  }

  // An RDMA device with one port. `pci_folder` may be empty.
  void verbs(const std::string& name, const std::string& pci_folder, const std::string& state,
             const std::string& link_layer = "Ethernet", int mtu = 9000) {
    const std::string own = "/sys/class/infiniband/" + name;
    const std::string port = own + "/ports/1";
    write(port + "/state", state + "\n");
    write(port + "/link_layer", link_layer + "\n");
    write(port + "/rate", "100 Gb/sec (4X EDR)\n");
    write(port + "/gids/0", "fe80:0000:0000:0000:526b:4b03:00f5:ce9c\n");
    write(port + "/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
    write(port + "/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    write(port + "/gid_attrs/types/0", "IB/RoCE v1\n");
    write(port + "/gid_attrs/types/1", "RoCE v2\n");
    write(port + "/gid_attrs/ndevs/0", "ens3np0\n");
    write("/sys/class/net/ens3np0/mtu", std::to_string(mtu) + "\n");
    if (!pci_folder.empty()) link(own + "/device", pci_folder);
  }

 private:
  std::string root_;
};

}  // namespace gpurun::tools
