// Export tables: the tables behind cuGetExportTable, with functions that CUDA's own libraries call
// and that have no public name. The client library and the emulated device serve them to programs,
// each through one host.
//
// All tables are served from inside the process. export_table_layout.h has their UUIDs and slots,
// and the source of these facts.
//
// All state is immortal and hidden, without constructors and destructors. It answers before our
// constructors and after our fini. Each copy of the library in one process has its own state.
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/semantics/export_table_layout.h"
#include "driver_abi/semantics/integrity.h"
#include "driver_abi/state/context_storage.h"

namespace gpurun::driver_abi {

// The functions that the tables need from their driver. Every member must be set unless it is
// marked optional. Any thread may call them, also while the process exits, when they return an
// error. Outputs are set on success only. Context arguments are as the program passed them, and may
// be any value.
struct ExportTableHost {
  // Returns CUDA_SUCCESS, or the result that every call returns now: NOT_INITIALIZED in a forked
  // child, DEINITIALIZED after the end. Called before any access to state.
  CUresult (*ready)();
  // As cuDriverGetVersion.
  CUresult (*driver_version)(int* version);
  // As cuDeviceGetCount.
  CUresult (*device_count)(int* count);
  // The identity of one device, as cuDeviceGetUuid (v1) and the PCI attributes return it.
  CUresult (*device_identity)(int ordinal, IntegrityDevice* identity);
  // The handle of the primary context, the same for the life of the process. Neither retains nor
  // activates it. Returns INVALID_DEVICE for a bad ordinal.
  CUresult (*primary_context)(CUdevice device, CUcontext* context);
  // The calling thread's current context. nullptr when there is no current context.
  CUresult (*current_context)(CUcontext* context);
  // As cuCtxGetId.
  CUresult (*context_id)(CUcontext context, unsigned long long* id);
  // As cuStreamGetId, for a stream value: a handle, or 0, 1, 2. `per_thread` is 1 for stream 2.
  CUresult (*stream_id)(CUcontext context, CUstream stream, int per_thread, unsigned long long* id);
  // As cuModuleGetFunctionCount and cuModuleEnumerateFunctions.
  CUresult (*function_count)(unsigned* count, CUmodule module);
  CUresult (*functions)(CUfunction* functions, unsigned count, CUmodule module);
  // As cuModuleLoadData.
  CUresult (*load_module)(CUmodule* module, const void* image);
  // Optional: one byte for each pair of multiprocessors, a group number, used to choose cluster
  // shapes. The bytes live forever. Without it the caller falls back, as measured.
  CUresult (*multiprocessor_groups)(const std::uint8_t** groups, unsigned long long* count);
};

// Sets the host. Call it once, before the program can get a table. `host` must live forever.
void set_export_table_host(const ExportTableHost* host) noexcept;

// cuGetExportTable. Returns INVALID_VALUE for NULL arguments. For tables that we do not serve it
// returns INVALID_VALUE and sets `*table` to NULL. Safe from any thread.
CUresult get_export_table(const void** table, const CUuuid* id) noexcept;

}  // namespace gpurun::driver_abi
