// Export tables: the host behind them calls our own entry points, as the program could.
#include <cstring>

#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/nvml_view.h"
#include "client/interpose/driver/primary_context.h"
#include "driver_abi/client_marker.h"
#include "driver_abi/export_tables.h"

namespace gpurun::client::interpose {
namespace {

CUresult table_ready() {
  Here here;
  return cuda(here.enter());
}

CUresult device_identity(int ordinal, driver_abi::IntegrityDevice* identity) {
  Here here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  const Device* device = here.devices().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(identity->uuid, device->uuid.data(), sizeof identity->uuid);
  identity->pci_domain = device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  identity->pci_bus = device->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  identity->pci_device = device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  return CUDA_SUCCESS;
}

CUresult table_primary_context(CUdevice ordinal, CUcontext* context) {
  Here here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  Context* primary = nullptr;
  const int result = primary_context(here, ordinal, &primary);
  if (result == 0) *context = as<CUcontext>(primary->handle);
  return cuda(result);
}

// A stream's object is its number, shifted so that it is not null and is aligned like a pointer. A
// stale or forged object is a wrong number at worst.
constexpr unsigned kObjectShift = 4;

CUresult stream_object(CUcontext, CUstream stream, int per_thread, void** object) {
  unsigned long long id = 0;
  const CUresult result =
      ::cuStreamGetId(per_thread != 0 ? as<CUstream>(protocol::kStreamPerThread) : stream, &id);
  if (result == CUDA_SUCCESS) *object = reinterpret_cast<void*>((id + 1) << kObjectShift);
  return result;
}

CUresult stream_object_id(CUcontext, void* object, unsigned long long* id) {
  const auto number = reinterpret_cast<std::uintptr_t>(object) >> kObjectShift;
  if (number == 0) return CUDA_ERROR_INVALID_HANDLE;
  *id = number - 1;
  return CUDA_SUCCESS;
}

CUresult module_functions(CUmodule module, CUfunction* functions, unsigned capacity,
                          unsigned* count) {
  const CUresult result = ::cuModuleGetFunctionCount(count, module);
  if (result != CUDA_SUCCESS || capacity == 0) return result;
  return ::cuModuleEnumerateFunctions(functions, capacity, module);
}

constexpr driver_abi::ExportTableHost kHost = {
    .ready = table_ready,
    .driver_version = ::cuDriverGetVersion,
    .device_count = ::cuDeviceGetCount,
    .device_identity = device_identity,
    .primary_context = table_primary_context,
    .current_context = ::cuCtxGetCurrent,
    .context_id = ::cuCtxGetId,
    .stream_object = stream_object,
    .stream_object_id = stream_object_id,
    .module_functions = module_functions,
    .load_module = ::cuModuleLoadData,
    .multiprocessor_groups = nullptr,
};

}  // namespace

namespace custom {

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (std::memcmp(id->bytes, driver_abi::kClientMarker.data(), sizeof id->bytes) == 0) {
    *table = &kClientView;
    return CUDA_SUCCESS;
  }
  driver_abi::set_export_table_host(&kHost);
  return driver_abi::get_export_table(table, id);
}

}  // namespace custom
}  // namespace gpurun::client::interpose
