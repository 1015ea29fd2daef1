// Devices: answered from the snapshot that came with the attach.
#include <cstdio>
#include <cstring>
#include <string>

#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/program_caller.h"
#include "driver_abi/semantics/device_facts.h"
#include "driver_abi/state/library_view.h"

namespace gpurun::client::interpose {
namespace {

thread_local const void* t_return_address = nullptr;

// Returns 0 and the device, or the call's result.
int enter_device(CUdevice ordinal, const Device** device) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return result;
  *device = here.devices().device(ordinal);
  return *device == nullptr ? int{CUDA_ERROR_INVALID_DEVICE} : 0;
}

// NVIDIA's math libraries choose machine code by the capability. A device that runs only PTX (the
// emulated one) reports to them a capability for which they carry PTX.
int capability_of(const Device& device) {
  if (device.library_capability != 0 && driver_abi::asked_by_math_library(t_return_address)) {
    return device.library_capability;
  }
  return device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
         device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

CUresult copy_text(const std::string& text, char* out, int length) {
  std::snprintf(out, static_cast<std::size_t>(length), "%s", text.c_str());
  return CUDA_SUCCESS;
}

CUresult copy_uuid(const Uuid& uuid, CUuuid* out) {
  static_assert(sizeof *out == sizeof uuid);
  std::memcpy(out, uuid.data(), sizeof *out);
  return CUDA_SUCCESS;
}

}  // namespace

void set_program_return_address(const void* address) noexcept { t_return_address = address; }

}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuDeviceGetCount(int* count) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = here.devices().device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* out, int ordinal) {
  const Device* device = nullptr;
  if (const int result = enter_device(ordinal, &device); result != 0) return cuda(result);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  const Device* device = nullptr;
  if (const int result = enter_device(ordinal, &device); result != 0) return cuda(result);
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  return copy_text(device->name, name, length);
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
  const Device* device = nullptr;
  if (const int result = enter_device(ordinal, &device); result != 0) return cuda(result);
  return uuid == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_uuid(device->uuid, uuid);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  const Device* device = nullptr;
  if (const int result = enter_device(ordinal, &device); result != 0) return cuda(result);
  return uuid == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_uuid(device->uuid_v2, uuid);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  const Device* device = nullptr;
  if (const int result = enter_device(ordinal, &device); result != 0) return cuda(result);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->total_memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  const Device* device = nullptr;
  if (const int result = enter_device(ordinal, &device); result != 0) return cuda(result);
  const auto id = static_cast<std::size_t>(attribute);
  if (value == nullptr || id >= device->attributes.size() || !device->attributes[id].has_value()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *value = *device->attributes[id];
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) {
    *value = capability_of(*device) / 10;
  } else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) {
    *value = capability_of(*device) % 10;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  const Device* device = nullptr;
  if (const int result = enter_device(ordinal, &device); result != 0) return cuda(result);
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = capability_of(*device) / 10;
  *minor = capability_of(*device) % 10;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice ordinal) {
  const Device* device = nullptr;
  if (const int result = enter_device(ordinal, &device); result != 0) return cuda(result);
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = driver_abi::properties_of([device](int id) { return device->attribute(id); });
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
  const Device* device = nullptr;
  if (const int result = enter_device(ordinal, &device); result != 0) return cuda(result);
  if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  return copy_text(device->pci_bus_id, text, length);
}

CUresult cuDeviceGetByPCIBusId(CUdevice* out, const char* text) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (out == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto address = driver_abi::parse_pci_address(text);
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  for (int ordinal = 0; ordinal < here.devices().device_count(); ++ordinal) {
    const Device& device = *here.devices().device(ordinal);
    const auto is = [&device](int attribute, unsigned value) {
      return device.attribute(attribute) == static_cast<int>(value);
    };
    if (is(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, address->domain) &&
        is(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, address->bus) &&
        is(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, address->device)) {
      *out = ordinal;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (here.devices().device(ordinal) == nullptr || here.devices().device(peer) == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *can = here.devices().can_access_peer(ordinal, peer) ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace gpurun::client::interpose::custom
