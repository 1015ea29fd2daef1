// NVML entry: NVML's entry points, first half: life, system, and finding a device.
#include <strings.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver_abi/nvml_front.h"

namespace gpurun::driver_abi::nvml {
namespace {

constinit std::atomic<int> init_count{0};

// Handles are numbers of our own that cannot be addresses.
constexpr std::uintptr_t kFirstHandle = 0x6e76'6d6c'0000;

// Finds the first device for which `matches` returns true.
template <typename Matches>
NvmlReturn find_device(NvmlHandle* handle, const Matches& matches) {
  GPURUN_NVML_TRY(initialized());
  if (handle == nullptr) return kNvmlInvalidArgument;
  for (unsigned i = 0; i < nvml_source().device_count(); ++i) {
    NvmlDevice device{};
    GPURUN_NVML_TRY(nvml_source().device(i, &device));
    if (!matches(device)) continue;
    *handle = handle_of(i);
    return kNvmlSuccess;
  }
  return kNvmlNotFound;
}

}  // namespace

NvmlReturn initialized() noexcept {
  return init_count.load(std::memory_order_acquire) > 0 ? kNvmlSuccess : kNvmlUninitialized;
}

NvmlHandle handle_of(unsigned index) noexcept {
  return reinterpret_cast<NvmlHandle>(kFirstHandle + index);
}

NvmlReturn index_of(NvmlHandle handle, unsigned* index) noexcept {
  GPURUN_NVML_TRY(initialized());
  const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(handle) - kFirstHandle;
  if (at >= nvml_source().device_count()) return kNvmlInvalidArgument;
  *index = static_cast<unsigned>(at);
  return kNvmlSuccess;
}

NvmlReturn device_of(NvmlHandle handle, NvmlDevice* device, unsigned* index) noexcept {
  unsigned at = 0;
  GPURUN_NVML_TRY(index_of(handle, &at));
  if (index != nullptr) *index = at;
  return nvml_source().device(at, device);
}

NvmlReturn copy_text(const char* text, char* out, std::size_t out_bytes) noexcept {
  if (out == nullptr) return kNvmlInvalidArgument;
  const std::size_t length = std::strlen(text);
  if (length >= out_bytes) return kNvmlInsufficientSize;
  std::memcpy(out, text, length + 1);
  return kNvmlSuccess;
}

void uuid_text(const NvmlDevice& device, char* out) noexcept {
  char* at = out + std::snprintf(out, kUuidTextBytes, "GPU-");
  for (unsigned i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
    *at++ = "0123456789abcdef"[device.uuid[i] >> 4];
    *at++ = "0123456789abcdef"[device.uuid[i] & 15];
  }
  *at = '\0';
}

}  // namespace gpurun::driver_abi::nvml

using namespace gpurun::driver_abi;        // NOLINT: every entry below speaks their language
using namespace gpurun::driver_abi::nvml;  // NOLINT

GPURUN_NVML_EXPORT int nvmlInitWithFlags(unsigned) {
  GPURUN_NVML_TRY(nvml_source().open());
  init_count.fetch_add(1, std::memory_order_acq_rel);
  return kNvmlSuccess;
}
GPURUN_NVML_EXPORT int nvmlInit_v2() { return nvmlInitWithFlags(0); }
GPURUN_NVML_EXPORT int nvmlInit() { return nvmlInitWithFlags(0); }

GPURUN_NVML_EXPORT int nvmlShutdown() {
  int count = init_count.load(std::memory_order_acquire);
  while (count > 0) {
    if (init_count.compare_exchange_weak(count, count - 1)) return kNvmlSuccess;
  }
  return kNvmlUninitialized;
}

GPURUN_NVML_EXPORT const char* nvmlErrorString(int result) {
  switch (result) {
    case kNvmlSuccess:
      return "Success";
    case kNvmlUninitialized:
      return "Uninitialized";
    case kNvmlInvalidArgument:
      return "Invalid Argument";
    case kNvmlNotSupported:
      return "Not Supported";
    case kNvmlNotFound:
      return "Not Found";
    case kNvmlInsufficientSize:
      return "Insufficient Size";
    case kNvmlDriverNotLoaded:
      return "Driver Not Loaded";
    case kNvmlGpuIsLost:
      return "GPU is lost";
    case kNvmlArgumentVersionMismatch:
      return "Argument Version Mismatch";
    default:
      return "Unknown Error";
  }
}

GPURUN_NVML_EXPORT int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  GPURUN_NVML_TRY(initialized());
  return copy_text(nvml_source().driver_version(), version, length);
}

GPURUN_NVML_EXPORT int nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  // NVML's own version is CUDA's major number before the driver's version.
  char text[96];
  if (initialized() != kNvmlSuccess) return kNvmlUninitialized;
  std::snprintf(text, sizeof text, "%d.%s", nvml_source().cuda_version() / 1000,
                nvml_source().driver_version());
  return copy_text(text, version, length);
}

GPURUN_NVML_EXPORT int nvmlSystemGetCudaDriverVersion(int* version) {
  GPURUN_NVML_TRY(initialized());
  if (version == nullptr) return kNvmlInvalidArgument;
  *version = nvml_source().cuda_version();
  return kNvmlSuccess;
}
GPURUN_NVML_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

GPURUN_NVML_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  GPURUN_NVML_TRY(initialized());
  if (count == nullptr) return kNvmlInvalidArgument;
  *count = nvml_source().device_count();
  return kNvmlSuccess;
}
GPURUN_NVML_EXPORT int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

GPURUN_NVML_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlHandle* handle) {
  GPURUN_NVML_TRY(initialized());
  if (handle == nullptr || index >= nvml_source().device_count()) return kNvmlInvalidArgument;
  *handle = handle_of(index);
  return kNvmlSuccess;
}
GPURUN_NVML_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, NvmlHandle* handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

// "domain:bus:device.function" in hexadecimal, the domain with any number of digits.
GPURUN_NVML_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, NvmlHandle* handle) {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  if (bus_id == nullptr || std::sscanf(bus_id, "%x:%x:%x", &domain, &bus, &device) != 3)
    return kNvmlInvalidArgument;
  return find_device(handle, [domain, bus, device](const NvmlDevice& found) {
    return found.pci_domain == domain && found.pci_bus == bus && found.pci_device == device;
  });
}
GPURUN_NVML_EXPORT int nvmlDeviceGetHandleByPciBusId(const char* bus_id, NvmlHandle* handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus_id, handle);
}

// With the prefix "GPU-" or without, as CUDA's text of it. cuda.core passes the latter
// (cuda_core/tests/test_device.py, test_to_system_device).
GPURUN_NVML_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, NvmlHandle* handle) {
  if (uuid == nullptr) return kNvmlInvalidArgument;
  return find_device(handle, [uuid](const NvmlDevice& found) {
    char text[kUuidTextBytes];
    uuid_text(found, text);
    return strcasecmp(text, uuid) == 0 || strcasecmp(text + sizeof "GPU-" - 1, uuid) == 0;
  });
}
