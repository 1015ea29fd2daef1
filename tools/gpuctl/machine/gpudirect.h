// GPUDirect: whether RDMA devices of this machine can reach the memory of its GPUs, and by what.
//
// The facts come from the kernel's version, NVIDIA's driver and the loaded modules. Nothing opens a
// device, and no transfer is tried.
#pragma once

#include <string>
#include <vector>

#include "base/system_files.h"

namespace gpurun::tools {

struct GpuDirect {
  bool has_devices = false;  // The machine has an NVIDIA GPU and an RDMA device.
  std::vector<std::string>
      ways;                    // "dma-buf", "nvidia_peermem". A worker tries the first one first.
  std::string why_no_dma_buf;  // Empty: dma-buf is one of them.

  bool possible() const { return has_devices && !ways.empty(); }
};

GpuDirect gpudirect(const SystemFiles& files);

// "possible by dma-buf, or else by nvidia_peermem" if it is possible, and otherwise why not.
std::string gpudirect_text(const GpuDirect& found);

}  // namespace gpurun::tools
