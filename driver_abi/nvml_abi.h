// NVML ABI: the codes and structures that our libnvidia-ml.so.1 serves, in our own notation.
//
// Source: NVML API Reference (structures "nvmlPciInfo_t" and so on). The unit test compares the
// sizes with the version constants of that manual, which contain them.
#pragma once

#include <cstdint>

namespace gpurun::driver_abi {

// nvmlReturn_t. An int on the ABI.
enum NvmlReturn : int {
  kNvmlSuccess = 0,
  kNvmlUninitialized = 1,
  kNvmlInvalidArgument = 2,
  kNvmlNotSupported = 3,
  kNvmlNotFound = 6,
  kNvmlInsufficientSize = 7,
  kNvmlDriverNotLoaded = 9,
  kNvmlGpuIsLost = 15,
  kNvmlArgumentVersionMismatch = 25,
  kNvmlUnknown = 999,
};

// nvmlDevice_t, an opaque value.
using NvmlHandle = void*;

// nvmlPciInfo_t since version 3.
struct NvmlPciInfo {
  char bus_id_legacy[16];  // "0000:01:00.0"
  std::uint32_t domain;
  std::uint32_t bus;
  std::uint32_t device;
  std::uint32_t pci_device_id;  // Device and vendor, 16 bits each.
  std::uint32_t pci_subsystem_id;
  char bus_id[32];  // "00000000:01:00.0"
};
static_assert(sizeof(NvmlPciInfo) == 68);

// nvmlPciInfo_t of versions 1 and 2.
struct NvmlPciInfoOld {
  char bus_id[16];
  std::uint32_t domain;
  std::uint32_t bus;
  std::uint32_t device;
  std::uint32_t pci_device_id;
  std::uint32_t pci_subsystem_id;
  std::uint32_t reserved[4];
};
static_assert(sizeof(NvmlPciInfoOld) == 52);

struct NvmlMemory {
  std::uint64_t total;
  std::uint64_t free;
  std::uint64_t used;
};

// nvmlMemory_v2_t. `version` is the structure's size and 2 << 24.
struct NvmlMemoryV2 {
  std::uint32_t version;
  std::uint64_t total;
  std::uint64_t reserved;
  std::uint64_t free;
  std::uint64_t used;
};
inline constexpr std::uint32_t kNvmlMemoryV2 = 0x0200'0028;
static_assert((kNvmlMemoryV2 & 0xff'ffff) == sizeof(NvmlMemoryV2));

struct NvmlProcessInfoV1 {
  std::uint32_t pid;
  std::uint64_t used_bytes;
};
static_assert(sizeof(NvmlProcessInfoV1) == 16);

struct NvmlProcessInfo {
  std::uint32_t pid;
  std::uint64_t used_bytes;
  std::uint32_t gpu_instance_id;      // 0xffffffff without MIG.
  std::uint32_t compute_instance_id;  // 0xffffffff without MIG.
};
static_assert(sizeof(NvmlProcessInfo) == 24);

struct NvmlUtilization {
  std::uint32_t gpu_percent;
  std::uint32_t memory_percent;
};

struct NvmlFieldValue {
  std::uint32_t field_id;
  std::uint32_t scope_id;
  std::int64_t timestamp_us;
  std::int64_t latency_us;
  std::uint32_t value_type;
  int result;  // NvmlReturn of this field.
  std::uint64_t value;
};
static_assert(sizeof(NvmlFieldValue) == 40);

}  // namespace gpurun::driver_abi
