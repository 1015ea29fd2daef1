// cuGetExportTable: the shared tables of driver_abi, backed by this device, and the marker by which
// a worker recognises the emulated device.
#include <cstring>

#include "driver_abi/emulated_view.h"
#include "driver_abi/row.h"
#include "driver_abi/state/export_tables.h"
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/api/ipc.h"
#include "emulated/objects/kernel_log.h"
#include "emulated/objects/primary_context.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

CUresult device_count(int* count) {
  *count = static_cast<int>(devices().size());
  return CUDA_SUCCESS;
}

CUresult device_identity(int ordinal, driver_abi::IntegrityDevice* identity) {
  const Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const CUuuid uuid = device->uuid();
  static_assert(sizeof uuid.bytes == sizeof identity->uuid);
  std::memcpy(identity->uuid, uuid.bytes, sizeof identity->uuid);
  const auto number = [device](CUdevice_attribute attribute) {
    int value = 0;
    device->attribute(attribute, settings().capability, &value);
    return value;
  };
  identity->pci_domain = number(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  identity->pci_bus = number(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  identity->pci_device = number(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  return CUDA_SUCCESS;
}

CUresult primary_context_of(CUdevice ordinal, CUcontext* context) {
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *context = primary_context(*device).context()->as<CUcontext>();
  return CUDA_SUCCESS;
}

CUresult current_context(CUcontext* context) {
  const ContextPtr& current = thread_state().current();
  *context = current == nullptr ? nullptr : current->as<CUcontext>();
  return CUDA_SUCCESS;
}

CUresult stream_id(CUcontext handle, CUstream stream_handle, int per_thread,
                   unsigned long long* id) {
  const auto context = handles().find<Context>(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const StreamPtr stream = per_thread != 0 ? thread_state().default_stream(context)
                                           : find_stream(context, stream_handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id = stream->id();
  return CUDA_SUCCESS;
}

constexpr driver_abi::ExportTableHost kHost = {
    .ready = check_not_forked,
    .driver_version = api::cuDriverGetVersion,
    .device_count = device_count,
    .device_identity = device_identity,
    .primary_context = primary_context_of,
    .current_context = current_context,
    .context_id = api::cuCtxGetId,
    .stream_id = stream_id,
    .function_count = api::cuModuleGetFunctionCount,
    .functions = api::cuModuleEnumerateFunctions,
    .load_module = api::cuModuleLoadData,
    .multiprocessor_groups = nullptr,
};

std::uint64_t used_bytes(int physical) {
  for (const auto& device : devices()) {
    if (device->physical() != physical) continue;
    return device->arena().bytes_total() - device->arena().bytes_free();
  }
  return 0;
}

constexpr driver_abi::EmulatedView kView = {
    .bytes = sizeof(driver_abi::EmulatedView),
    .library_capability = [] { return settings().library_capability; },
    .used_bytes = used_bytes,
    .ipc_file = ipc_file,
    .take_ipc_file = take_ipc_file,
    .number_launches = kernel_log::set_number,
    .implements =
        [](std::uint16_t opcode) {
          const driver_abi::Row* row = driver_abi::find_row(opcode);
          return row != nullptr && row->emulated;
        },
    .watch_kernels = kernel_log::watch,
};

}  // namespace

namespace api {

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (std::memcmp(id->bytes, driver_abi::kEmulatedMarker.data(), sizeof id->bytes) == 0) {
    *table = &kView;
    return CUDA_SUCCESS;
  }
  driver_abi::set_export_table_host(&kHost);
  return driver_abi::get_export_table(table, id);
}

}  // namespace api
}  // namespace gpurun::emulated
