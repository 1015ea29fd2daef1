// NVML test source: two devices behind the NVML front.
#include <cstring>

#include "driver_abi/nvml_source.h"

namespace gpurun::driver_abi {
namespace {

NvmlReturn device(unsigned index, NvmlDevice* out) {
  *out = {};
  std::strcpy(out->name, index == 0 ? "First" : "Second");
  for (unsigned i = 0; i < 16; ++i) out->uuid[i] = static_cast<std::uint8_t>(0xa0 + i);
  out->uuid[15] = static_cast<std::uint8_t>(index);
  out->pci_domain = 0x10;
  out->pci_bus = 0x1a + index;
  out->pci_device = 0;
  out->compute_major = 12;
  out->compute_minor = 1;
  out->memory_bytes = std::uint64_t{8} << 30;
  out->pcie_generation = index == 0 ? 4 : 0;
  out->pcie_lanes = 16;
  return kNvmlSuccess;
}

constexpr NvmlSource kSource = {
    .open = [] { return kNvmlSuccess; },
    .device_count = [] { return 2U; },
    .device = device,
    .used_bytes = [](unsigned, std::uint64_t* used) { return *used = 1 << 30, kNvmlSuccess; },
    .driver_version = [] { return "580.65.06"; },
    .cuda_version = [] { return 13000; },
    .readings =
        [](unsigned, NvmlReadings* readings) {
          readings->temperature_c = 45;
          return kNvmlSuccess;
        },
    .processes =
        [](unsigned, NvmlProcess* processes, unsigned capacity, unsigned* count) {
          *count = 2;
          if (capacity >= 2) {
            processes[0] = {1234, 77};
            processes[1] = {1235, 78};
          }
          return kNvmlSuccess;
        },
    .peer_access = nullptr,
    .topology_level = [](unsigned from, unsigned to) { return from == to ? 0 : 20; },
};

}  // namespace

const NvmlSource& nvml_source() noexcept { return kSource; }

}  // namespace gpurun::driver_abi
