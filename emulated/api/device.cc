// Devices: their number and their attributes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "driver_abi/semantics/device_facts.h"
#include "driver_abi/semantics/object_flags.h"
#include "driver_abi/state/library_view.h"
#include "emulated/api/caller.h"
#include "emulated/api/entry.h"
#include "emulated/objects/device_limits.h"
#include "emulated/objects/memory_pool.h"
#include "emulated/objects/primary_context.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

thread_local const void* return_address_of_program = nullptr;

}  // namespace

void set_program_return_address(const void* address) { return_address_of_program = address; }
const void* program_return_address() { return return_address_of_program; }

// See settings.h.
int capability_for_caller(const void* return_address) {
  const Settings& s = settings();
  const bool library =
      s.library_capability != 0 && driver_abi::asked_by_math_library(return_address);
  return library ? s.library_capability : s.capability;
}

}  // namespace gpurun::emulated

namespace gpurun::emulated::api {
namespace {

// CUDA_SUCCESS and the device, or the error code.
CUresult enter_device(CUdevice ordinal, Device** device) {
  GPURUN_ENTER_DRIVER();
  *device = device_at(ordinal);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceGetCount(int* count) {
  GPURUN_ENTER_DRIVER();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(devices().size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* out, int ordinal) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *out = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(length), "%s", device->name().c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *uuid = device->uuid();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  return api::cuDeviceGetUuid(uuid, ordinal);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->arena().bytes_total();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool of_capability = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ||
                             attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
  const int capability =
      of_capability ? capability_for_caller(program_return_address()) : settings().capability;
  return device->attribute(attribute, capability, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int capability = capability_for_caller(program_return_address());
  *major = capability / 10;
  *minor = capability % 10;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = driver_abi::properties_of([device](CUdevice_attribute attribute) {
    int number = 0;
    device->attribute(attribute, settings().capability, &number);
    return number;
  });
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(text, static_cast<std::size_t>(length), "%s", device->pci_bus_id().c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* out, const char* text) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto address = driver_abi::parse_pci_address(text);
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& device : devices()) {
    if (address->domain == 0 && address->device == 0 &&
        address->bus == static_cast<unsigned>(device->physical()) + 1) {
      *out = device->ordinal();
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  GPURUN_ENTER_DRIVER();
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(device) == nullptr || device_at(peer) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice source,
                                 CUdevice destination) {
  GPURUN_ENTER_DRIVER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(source) == nullptr || device_at(destination) == nullptr || source == destination) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* width, CUarray_format, unsigned int channels,
                                            CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (width == nullptr || (channels != 1 && channels != 2 && channels != 4)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *width = std::size_t{1} << 28;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType, CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (supported == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *supported = 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = primary_context(*device).retain()->as<CUcontext>();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  return primary_context(*device).release() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  primary_context(*device).reset();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = primary_context(*device).context()->flags;
  *active = primary_context(*device).is_active();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (!driver_abi::is_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  primary_context(*device).context()->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDevResource(CUdevice ordinal, CUdevResource* resource, CUdevResourceType type) {
  Device* device = nullptr;
  GPURUN_TRY(enter_device(ordinal, &device));
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = CUdevResource{};
  resource->type = type;
  resource->sm.smCount = static_cast<unsigned>(settings().multiprocessors);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
