// GPUDirect: dma-buf takes a new kernel and open kernel modules, and a module of peer memory does
// not.
#include "tools/gpuctl/machine/gpudirect.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/pci_devices.h"
#include "tools/gpuctl/machine/kernel_modules.h"
#include "tools/gpuctl/machine/verbs.h"

namespace gpurun::tools {
namespace {

// Empty: RDMA devices may reach GPU memory by dma-buf.
std::string why_no_dma_buf(const SystemFiles& files) {
  // The first kernel with registrations of dma-bufs (ib_umem_dmabuf).
  constexpr std::pair<long, long> kFirst{5, 12};
  const std::string release = files.text("/proc/sys/kernel/osrelease").value_or("");
  char* end = nullptr;
  const long major = std::strtol(release.c_str(), &end, 10);
  const long minor = *end == '.' ? std::strtol(end + 1, nullptr, 10) : 0;
  if (std::pair(major, minor) < kFirst) return "Linux " + release + " is older than 5.12";
  const std::string driver = files.text("/proc/driver/nvidia/version").value_or("");
  if (driver.empty()) return "NVIDIA's driver is not loaded";
  const bool open = driver.find("Open Kernel Module") != std::string::npos;
  return open ? "" : "NVIDIA's driver has proprietary kernel modules";
}

}  // namespace

GpuDirect gpudirect(const SystemFiles& files) {
  GpuDirect found;
  const std::vector<PciDevice> pci = pci_devices(files);
  found.has_devices =
      std::any_of(pci.begin(), pci.end(), is_nvidia_gpu) && !verbs_devices(files).empty();
  found.why_no_dma_buf = why_no_dma_buf(files);
  if (found.why_no_dma_buf.empty()) found.ways.emplace_back("dma-buf");
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    if (module_started_as(files, module) == 0) continue;
    found.ways.emplace_back(module);
    break;
  }
  return found;
}

std::string gpudirect_text(const GpuDirect& found) {
  if (!found.has_devices) return "it takes an NVIDIA GPU and an RDMA device";
  if (found.ways.empty()) {
    return "RDMA devices do not reach GPU memory: no module of peer memory is loaded, and there is "
           "no dma-buf, because " +
           found.why_no_dma_buf;
  }
  std::string text = "possible by " + found.ways.front();
  if (found.ways.size() > 1) text += ", or else by " + found.ways.back();
  if (!found.why_no_dma_buf.empty()) text += ", and not by dma-buf: " + found.why_no_dma_buf;
  return text;
}

}  // namespace gpurun::tools
