// Export tables: the host behind them calls our own entry points, as the program could.
#include <cstring>

#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/nvml_view.h"
#include "client/interpose/driver/primary_context.h"
#include "driver_abi/client_marker.h"
#include "driver_abi/state/export_tables.h"

namespace gpurun::client::interpose {
namespace {

CUresult table_ready() {
  EntryContext here;
  return cuda(here.enter());
}

CUresult device_identity(int ordinal, driver_abi::IntegrityDevice* identity) {
  EntryContext here;
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
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  Context* primary = nullptr;
  const int result = primary_context(here, ordinal, &primary);
  if (result == 0) *context = as<CUcontext>(primary->handle);
  return cuda(result);
}

CUresult stream_id(CUcontext, CUstream stream, int per_thread, unsigned long long* id) {
  return ::cuStreamGetId(per_thread != 0 ? as<CUstream>(protocol::kStreamPerThread) : stream, id);
}

constexpr driver_abi::ExportTableHost kHost = {
    .ready = table_ready,
    .driver_version = ::cuDriverGetVersion,
    .device_count = ::cuDeviceGetCount,
    .device_identity = device_identity,
    .primary_context = table_primary_context,
    .current_context = ::cuCtxGetCurrent,
    .context_id = ::cuCtxGetId,
    .stream_id = stream_id,
    .function_count = ::cuModuleGetFunctionCount,
    .functions = ::cuModuleEnumerateFunctions,
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
