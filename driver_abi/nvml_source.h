// What our libnvidia-ml.so.1 knows and does not know: the narrow interface behind NVML's functions.
//
// The same front stands before a session's snapshot (client library) and before the emulated
// device's settings. gpurun_nvml_library() in nvml.cmake builds a library from the front and one
// source file that defines nvml_source(). NVML and CUDA must agree: uuid and PCI address here are
// those of cuDeviceGetUuid and cuDeviceGetPCIBusId.
#pragma once

#include <cstdint>

#include "driver_abi/nvml_abi.h"

namespace gpurun::driver_abi {

inline constexpr unsigned kNvmlDevicesMax = 64;

// What does not change.
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
  unsigned pcie_generation;  // 0 when unknown: NOT_SUPPORTED then,
  unsigned pcie_lanes;       // likewise.
};

// What changes; -1 is unknown and answered NOT_SUPPORTED.
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

// Functions may be called from any thread. Those after `open` are called only once it succeeded.
struct NvmlSource {
  // Finds the devices. Called by every nvmlInit until it succeeds; kNvmlDriverNotLoaded or another
  // failure is what nvmlInit then answers.
  NvmlReturn (*open)();
  unsigned (*device_count)();  // At most kNvmlDevicesMax, constant once open.
  // Index in CUDA's order, below device_count().
  NvmlReturn (*device)(unsigned index, NvmlDevice* device);
  NvmlReturn (*used_bytes)(unsigned index, std::uint64_t* used_bytes);
  // Text that lives for ever: "580.65.06".
  const char* (*driver_version)();
  int (*cuda_version)();  // 13000
  // Optional, each may be nullptr.
  NvmlReturn (*readings)(unsigned index, NvmlReadings* readings);
  // Writes up to `capacity` processes and how many there are.
  NvmlReturn (*processes)(unsigned index, NvmlProcess* processes, unsigned capacity,
                          unsigned* count);
  bool (*peer_access)(unsigned from, unsigned to);
};

// Defined by whoever builds the library.
const NvmlSource& nvml_source() noexcept;

}  // namespace gpurun::driver_abi
