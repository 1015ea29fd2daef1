// NVML device: NVML's entry points, second half: queries of one device. Facts that the source lacks
// are NOT_SUPPORTED, which every known caller accepts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "driver_abi/nvml_front.h"

namespace gpurun::driver_abi::nvml {
namespace {

// One number of the readings.
NvmlReturn reading(NvmlHandle handle, int NvmlReadings::*which, unsigned* out) {
  unsigned index = 0;
  GPURUN_NVML_TRY(index_of(handle, &index));
  if (out == nullptr) return kNvmlInvalidArgument;
  if (nvml_source().readings == nullptr) return kNvmlNotSupported;
  NvmlReadings readings;
  GPURUN_NVML_TRY(nvml_source().readings(index, &readings));
  if (readings.*which < 0) return kNvmlNotSupported;
  *out = static_cast<unsigned>(readings.*which);
  return kNvmlSuccess;
}

// A constant value for all our devices.
template <typename T>
NvmlReturn constant(NvmlHandle handle, T value, T* out) {
  unsigned index = 0;
  GPURUN_NVML_TRY(index_of(handle, &index));
  if (out == nullptr) return kNvmlInvalidArgument;
  *out = value;
  return kNvmlSuccess;
}

NvmlReturn known(NvmlHandle handle, unsigned NvmlDevice::*which, unsigned* out) {
  NvmlDevice device{};
  GPURUN_NVML_TRY(device_of(handle, &device));
  if (out == nullptr) return kNvmlInvalidArgument;
  if (device.*which == 0) return kNvmlNotSupported;
  *out = device.*which;
  return kNvmlSuccess;
}

NvmlReturn memory(NvmlHandle handle, std::uint64_t* total, std::uint64_t* used) {
  NvmlDevice device{};
  unsigned index = 0;
  GPURUN_NVML_TRY(device_of(handle, &device, &index));
  std::uint64_t asked = 0;
  GPURUN_NVML_TRY(nvml_source().used_bytes(index, &asked));
  *total = device.memory_bytes;
  *used = std::min(asked, device.memory_bytes);
  return kNvmlSuccess;
}

// Fills the caller's array. Its elements differ between the versions.
template <typename Info>
NvmlReturn processes(NvmlHandle handle, unsigned* count, Info* infos) {
  constexpr unsigned kProcessesMax = 512;
  unsigned index = 0;
  GPURUN_NVML_TRY(index_of(handle, &index));
  if (count == nullptr || (*count > 0 && infos == nullptr)) return kNvmlInvalidArgument;
  NvmlProcess found[kProcessesMax];
  unsigned found_count = 0;
  if (nvml_source().processes != nullptr)
    GPURUN_NVML_TRY(nvml_source().processes(index, found, kProcessesMax, &found_count));
  found_count = std::min(found_count, kProcessesMax);
  const unsigned capacity = *count;
  *count = found_count;
  if (found_count > capacity) return kNvmlInsufficientSize;
  for (unsigned i = 0; i < found_count; ++i) {
    std::memset(&infos[i], 0, sizeof infos[i]);
    infos[i].pid = found[i].pid;
    infos[i].used_bytes = found[i].used_bytes;
    if constexpr (std::is_same_v<Info, NvmlProcessInfo>) {
      infos[i].gpu_instance_id = 0xffff'ffff;
      infos[i].compute_instance_id = 0xffff'ffff;
    }
  }
  return kNvmlSuccess;
}

// nvmlDeviceArchitecture_t from the compute capability.
unsigned architecture_of(int major, int minor) {
  switch (major) {
    case 7:
      return minor >= 5 ? 6 : 5;  // Turing, Volta
    case 8:
      return minor >= 9 ? 8 : 7;  // Ada, Ampere
    case 9:
      return 9;  // Hopper
    case 10:
    case 11:
    case 12:
      return 10;  // Blackwell
    default:
      return 0xffff'ffff;
  }
}

}  // namespace
}  // namespace gpurun::driver_abi::nvml

using namespace gpurun::driver_abi;        // NOLINT: every entry below speaks their language
using namespace gpurun::driver_abi::nvml;  // NOLINT

GPURUN_NVML_EXPORT int nvmlDeviceGetIndex(NvmlHandle handle, unsigned* out) {
  unsigned index = 0;
  GPURUN_NVML_TRY(index_of(handle, &index));
  if (out == nullptr) return kNvmlInvalidArgument;
  *out = index;
  return kNvmlSuccess;
}

GPURUN_NVML_EXPORT int nvmlDeviceGetMinorNumber(NvmlHandle handle, unsigned* out) {
  return nvmlDeviceGetIndex(handle, out);
}

GPURUN_NVML_EXPORT int nvmlDeviceGetName(NvmlHandle handle, char* name, unsigned length) {
  NvmlDevice device{};
  GPURUN_NVML_TRY(device_of(handle, &device));
  return copy_text(device.name, name, length);
}

GPURUN_NVML_EXPORT int nvmlDeviceGetUUID(NvmlHandle handle, char* uuid, unsigned length) {
  NvmlDevice device{};
  GPURUN_NVML_TRY(device_of(handle, &device));
  char text[kUuidTextBytes];
  uuid_text(device, text);
  return copy_text(text, uuid, length);
}

GPURUN_NVML_EXPORT int nvmlDeviceGetCudaComputeCapability(NvmlHandle handle, int* major,
                                                          int* minor) {
  NvmlDevice device{};
  GPURUN_NVML_TRY(device_of(handle, &device));
  if (major == nullptr || minor == nullptr) return kNvmlInvalidArgument;
  *major = device.compute_major;
  *minor = device.compute_minor;
  return kNvmlSuccess;
}

GPURUN_NVML_EXPORT int nvmlDeviceGetArchitecture(NvmlHandle handle, unsigned* architecture) {
  NvmlDevice device{};
  GPURUN_NVML_TRY(device_of(handle, &device));
  if (architecture == nullptr) return kNvmlInvalidArgument;
  *architecture = architecture_of(device.compute_major, device.compute_minor);
  return kNvmlSuccess;
}

GPURUN_NVML_EXPORT int nvmlDeviceGetMemoryInfo(NvmlHandle handle, NvmlMemory* out) {
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  GPURUN_NVML_TRY(memory(handle, &total, &used));
  if (out == nullptr) return kNvmlInvalidArgument;
  *out = {total, total - used, used};
  return kNvmlSuccess;
}

GPURUN_NVML_EXPORT int nvmlDeviceGetMemoryInfo_v2(NvmlHandle handle, NvmlMemoryV2* out) {
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  GPURUN_NVML_TRY(memory(handle, &total, &used));
  if (out == nullptr) return kNvmlInvalidArgument;
  if (out->version != kNvmlMemoryV2) return kNvmlArgumentVersionMismatch;
  *out = {kNvmlMemoryV2, total, 0, total - used, used};
  return kNvmlSuccess;
}

GPURUN_NVML_EXPORT int nvmlDeviceGetPciInfo_v3(NvmlHandle handle, NvmlPciInfo* out) {
  NvmlDevice device{};
  GPURUN_NVML_TRY(device_of(handle, &device));
  if (out == nullptr) return kNvmlInvalidArgument;
  *out = {};
  out->domain = device.pci_domain;
  out->bus = device.pci_bus;
  out->device = device.pci_device;
  out->pci_device_id = device.pci_device_id;
  out->pci_subsystem_id = device.pci_subsystem_id;
  std::snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", device.pci_domain,
                device.pci_bus & 0xff, device.pci_device & 0xff);
  std::snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.0",
                device.pci_domain & 0xffff, device.pci_bus & 0xff, device.pci_device & 0xff);
  return kNvmlSuccess;
}

GPURUN_NVML_EXPORT int nvmlDeviceGetPciInfo_v2(NvmlHandle handle, NvmlPciInfoOld* out) {
  NvmlPciInfo info{};
  GPURUN_NVML_TRY(static_cast<NvmlReturn>(nvmlDeviceGetPciInfo_v3(handle, &info)));
  if (out == nullptr) return kNvmlInvalidArgument;
  *out = {};
  std::memcpy(out->bus_id, info.bus_id_legacy, sizeof out->bus_id);
  out->domain = info.domain;
  out->bus = info.bus;
  out->device = info.device;
  out->pci_device_id = info.pci_device_id;
  out->pci_subsystem_id = info.pci_subsystem_id;
  return kNvmlSuccess;
}
GPURUN_NVML_EXPORT int nvmlDeviceGetPciInfo(NvmlHandle handle, NvmlPciInfoOld* out) {
  return nvmlDeviceGetPciInfo_v2(handle, out);
}

GPURUN_NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(NvmlHandle handle, unsigned* count,
                                                               NvmlProcessInfo* infos) {
  return processes(handle, count, infos);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(NvmlHandle handle, unsigned* count,
                                                               NvmlProcessInfo* infos) {
  return processes(handle, count, infos);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses(NvmlHandle handle, unsigned* count,
                                                            NvmlProcessInfoV1* infos) {
  return processes(handle, count, infos);
}

// No process uses our devices for graphics.
GPURUN_NVML_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(NvmlHandle handle, unsigned* count,
                                                                void*) {
  return constant(handle, 0U, count);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(NvmlHandle handle, unsigned* count,
                                                                void*) {
  return constant(handle, 0U, count);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetGraphicsRunningProcesses(NvmlHandle handle, unsigned* count,
                                                             void*) {
  return constant(handle, 0U, count);
}

GPURUN_NVML_EXPORT int nvmlDeviceGetUtilizationRates(NvmlHandle handle, NvmlUtilization* out) {
  NvmlUtilization rates{};
  if (out == nullptr) return kNvmlInvalidArgument;
  GPURUN_NVML_TRY(reading(handle, &NvmlReadings::gpu_percent, &rates.gpu_percent));
  GPURUN_NVML_TRY(reading(handle, &NvmlReadings::memory_percent, &rates.memory_percent));
  *out = rates;
  return kNvmlSuccess;
}

GPURUN_NVML_EXPORT int nvmlDeviceGetTemperature(NvmlHandle handle, int, unsigned* celsius) {
  return reading(handle, &NvmlReadings::temperature_c, celsius);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetPowerUsage(NvmlHandle handle, unsigned* milliwatt) {
  return reading(handle, &NvmlReadings::power_mw, milliwatt);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetEnforcedPowerLimit(NvmlHandle handle, unsigned* milliwatt) {
  return reading(handle, &NvmlReadings::power_limit_mw, milliwatt);
}

// nvmlClockType_t: 0 graphics, 1 SM, 2 memory.
GPURUN_NVML_EXPORT int nvmlDeviceGetClockInfo(NvmlHandle handle, int type, unsigned* mhz) {
  if (type < 0 || type > 3) return kNvmlInvalidArgument;
  return type == 2 ? reading(handle, &NvmlReadings::memory_clock_mhz, mhz)
                   : reading(handle, &NvmlReadings::sm_clock_mhz, mhz);
}

GPURUN_NVML_EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(NvmlHandle handle, unsigned* out) {
  return known(handle, &NvmlDevice::pcie_generation, out);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(NvmlHandle handle, unsigned* out) {
  return known(handle, &NvmlDevice::pcie_generation, out);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetMaxPcieLinkWidth(NvmlHandle handle, unsigned* out) {
  return known(handle, &NvmlDevice::pcie_lanes, out);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetCurrPcieLinkWidth(NvmlHandle handle, unsigned* out) {
  return known(handle, &NvmlDevice::pcie_lanes, out);
}

// The speed in Mbit/s for each lane, by PCIe generation.
GPURUN_NVML_EXPORT int nvmlDeviceGetPcieSpeed(NvmlHandle handle, unsigned* mbps) {
  static constexpr unsigned kMbps[] = {0, 2'500, 5'000, 8'000, 16'000, 32'000, 64'000};
  unsigned generation = 0;
  GPURUN_NVML_TRY(known(handle, &NvmlDevice::pcie_generation, &generation));
  if (mbps == nullptr) return kNvmlInvalidArgument;
  if (generation >= std::size(kMbps)) return kNvmlNotSupported;
  *mbps = kMbps[generation];
  return kNvmlSuccess;
}

// 0 is the default mode: many processes may use the device.
GPURUN_NVML_EXPORT int nvmlDeviceGetComputeMode(NvmlHandle handle, int* mode) {
  return constant(handle, 0, mode);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetPersistenceMode(NvmlHandle handle, int* mode) {
  return constant(handle, 1, mode);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetDisplayMode(NvmlHandle handle, int* mode) {
  return constant(handle, 0, mode);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetDisplayActive(NvmlHandle handle, int* active) {
  return constant(handle, 0, active);
}
GPURUN_NVML_EXPORT int nvmlDeviceGetMaxMigDeviceCount(NvmlHandle handle, unsigned* count) {
  return constant(handle, 0U, count);
}
GPURUN_NVML_EXPORT int nvmlDeviceIsMigDeviceHandle(NvmlHandle handle, unsigned* is_mig) {
  return constant(handle, 0U, is_mig);
}

// nvmlGpuP2PStatus_t: 0 is ok, 5 not supported. The call itself must succeed (NCCL, measured).
GPURUN_NVML_EXPORT int nvmlDeviceGetP2PStatus(NvmlHandle from, NvmlHandle to, int, int* status) {
  unsigned a = 0;
  unsigned b = 0;
  GPURUN_NVML_TRY(index_of(from, &a));
  GPURUN_NVML_TRY(index_of(to, &b));
  if (status == nullptr) return kNvmlInvalidArgument;
  const bool peers =
      a == b || (nvml_source().peer_access != nullptr && nvml_source().peer_access(a, b));
  *status = peers ? 0 : 5;
  return kNvmlSuccess;
}

// nvmlGpuTopologyLevel_t of two devices. -1: unknown.
static int topology_level(unsigned from, unsigned to) noexcept {
  return nvml_source().topology_level == nullptr ? -1 : nvml_source().topology_level(from, to);
}

GPURUN_NVML_EXPORT int nvmlDeviceGetTopologyCommonAncestor(NvmlHandle from, NvmlHandle to,
                                                           int* level) {
  unsigned a = 0;
  unsigned b = 0;
  GPURUN_NVML_TRY(index_of(from, &a));
  GPURUN_NVML_TRY(index_of(to, &b));
  if (level == nullptr) return kNvmlInvalidArgument;
  const int found = topology_level(a, b);
  if (found < 0) return kNvmlNotSupported;
  *level = found;
  return kNvmlSuccess;
}

GPURUN_NVML_EXPORT int nvmlDeviceGetFieldValues(NvmlHandle handle, int count,
                                                NvmlFieldValue* values) {
  unsigned index = 0;
  GPURUN_NVML_TRY(index_of(handle, &index));
  if (count < 0 || (count > 0 && values == nullptr)) return kNvmlInvalidArgument;
  for (int i = 0; i < count; ++i) values[i].result = kNvmlNotSupported;
  return kNvmlSuccess;
}

// Our devices are equally far from every processor of this machine.
GPURUN_NVML_EXPORT int nvmlDeviceGetCpuAffinity(NvmlHandle handle, unsigned words,
                                                unsigned long* set) {
  unsigned index = 0;
  GPURUN_NVML_TRY(index_of(handle, &index));
  if (words == 0 || set == nullptr) return kNvmlInvalidArgument;
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  const long configured = sysconf(_SC_NPROCESSORS_CONF);
  const auto processors = static_cast<unsigned long>(configured > 0 ? configured : 1);
  for (unsigned i = 0; i < words; ++i) set[i] = 0;
  for (unsigned long i = 0; i < processors && i / kBits < words; ++i)
    set[i / kBits] |= 1UL << (i % kBits);
  return kNvmlSuccess;
}
