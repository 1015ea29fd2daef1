// NVML source: the facts that our libnvidia-ml.so.1 knows, as the narrow interface behind NVML's
// functions.
//
// The same front uses a session's snapshot (client library) or the emulated device's settings.
// gpurun_nvml_library() in nvml.cmake builds a library from the front and one source file that
// defines nvml_source(). NVML and CUDA must agree: uuid and PCI address here are those of
// cuDeviceGetUuid and cuDeviceGetPCIBusId.
#pragma once

#include <cstdint>

#include "driver_abi/nvml_abi.h"

namespace gpurun::driver_abi {

// The constant facts of a device.
struct NvmlDevice {
  char name[96];  // NUL-terminated.
  std::uint8_t uuid[16];
  std::uint32_t pci_domain;
  std::uint32_t pci_bus;
  std::uint32_t pci_device;
  std::uint32_t pci_device_id;     // 0 when unknown.
  std::uint32_t pci_subsystem_id;  // 0 when unknown.
  int compute_major;
  int compute_minor;
  std::uint64_t memory_bytes;
  unsigned pcie_generation;  // 0 when unknown: NOT_SUPPORTED.
  unsigned pcie_lanes;       // 0 when unknown: NOT_SUPPORTED.
};

// The changing values. -1 is unknown, and answered NOT_SUPPORTED.
struct NvmlReadings {
  int gpu_percent = -1;
  int memory_percent = -1;
  int temperature_c = -1;
  int power_mw = -1;
  int power_limit_mw = -1;
  int sm_clock_mhz = -1;
  int memory_clock_mhz = -1;
};

struct NvmlProcess {
  std::uint32_t pid;
  std::uint64_t used_bytes;
};

// Any thread may call these functions. Those after `open` are called only after it has succeeded.
struct NvmlSource {
  // Finds the devices. Every nvmlInit calls it until it succeeds. nvmlInit then returns its
  // failure, which is kNvmlDriverNotLoaded or another one.
  NvmlReturn (*open)();
  unsigned (*device_count)();  // Constant once open.
  // Index in CUDA's order, below device_count().
  NvmlReturn (*device)(unsigned index, NvmlDevice* device);
  NvmlReturn (*used_bytes)(unsigned index, std::uint64_t* used_bytes);
  // A text that lives forever: "580.65.06".
  const char* (*driver_version)();
  int (*cuda_version)();  // 13000
  // Optional members, each may be nullptr.
  NvmlReturn (*readings)(unsigned index, NvmlReadings* readings);
  // Writes up to `capacity` processes, and their total number to `count`.
  NvmlReturn (*processes)(unsigned index, NvmlProcess* processes, unsigned capacity,
                          unsigned* count);
  bool (*peer_access)(unsigned from, unsigned to);
  // nvmlGpuTopologyLevel_t of two devices. -1: unknown.
  int (*topology_level)(unsigned from, unsigned to);
};

// The code that builds the library defines it.
const NvmlSource& nvml_source() noexcept;

}  // namespace gpurun::driver_abi
