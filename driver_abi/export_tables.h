// The tables behind cuGetExportTable: functions without a public name that CUDA's own libraries
// call. Served to programs by the client library and by the emulated device, through one host.
//
// Nine tables are served, all from inside the process; every other UUID is refused (1, NULL), which
// each known caller survives. Source of UUIDs, signatures and behaviour: measured by watching what
// CUDA 12.9 and 13.0 to 13.5 runtimes and the math libraries pass and how they use the results; and
// public sources of comparable libraries for the number of slots. No driver was examined.
//
// All state is immortal and hidden, without constructors and destructors: it answers before our
// constructors and after our fini, and each copy of the library in one process has its own.
#pragma once

#include <cstdint>

#include "driver_abi/context_storage.h"
#include "driver_abi/cuda_abi.h"
#include "driver_abi/integrity.h"

namespace gpurun::driver_abi {

// What the tables ask of the driver that they belong to. Every member must be set except where it
// says optional. All may be called from any thread, also while the process exits: then they answer
// an error. Outputs are set on success only. Context arguments are as the program passed them, and
// may be anything.
struct ExportTableHost {
  // CUDA_SUCCESS, or what every call answers now: NOT_INITIALIZED in a forked child,
  // DEINITIALIZED after the end. Asked before anything that touches state.
  CUresult (*ready)();
  // What cuDriverGetVersion answers.
  CUresult (*driver_version)(int* version);
  // Devices that cuDeviceGetCount counts.
  CUresult (*device_count)(int* count);
  // Identity of one of them, as cuDeviceGetUuid (v1) and the PCI attributes answer it.
  CUresult (*device_identity)(int ordinal, IntegrityDevice* identity);
  // Handle of the primary context, which is neither retained nor made active by this; the same for
  // the life of the process. INVALID_DEVICE for a bad ordinal.
  CUresult (*primary_context)(CUdevice device, CUcontext* context);
  // Current context of the calling thread; nullptr when there is none.
  CUresult (*current_context)(CUcontext* context);
  // What cuCtxGetId answers.
  CUresult (*context_id)(CUcontext context, unsigned long long* id);
  // An opaque object for a stream value: a handle, or 0, 1, 2. `per_thread` is 1 for stream 2.
  CUresult (*stream_object)(CUcontext context, CUstream stream, int per_thread, void** object);
  // The id of what stream_object returned, equal to cuStreamGetId's.
  CUresult (*stream_object_id)(CUcontext context, void* object, unsigned long long* id);
  // Writes up to `capacity` functions of the module, and how many it has in all.
  CUresult (*module_functions)(CUmodule module, CUfunction* functions, unsigned capacity,
                               unsigned* count);
  // As cuModuleLoadData.
  CUresult (*load_module)(CUmodule* module, const void* image);
  // Optional: one byte per pair of multiprocessors, a group number, used to choose cluster shapes.
  // The bytes live for ever. Without it the caller falls back, as measured.
  CUresult (*multiprocessor_groups)(const std::uint8_t** groups, unsigned long long* count);
};

// Sets the host, once, before the program can get a table. `host` must live for ever.
void set_export_table_host(const ExportTableHost* host) noexcept;

// cuGetExportTable. INVALID_VALUE for NULL arguments and for tables that we do not serve, `*table`
// then being NULL. Safe from any thread.
CUresult get_export_table(const void** table, const CUuuid* id) noexcept;

// For logs, tests and measurements: the served tables.
struct ExportTableDescription {
  const char* name;  // "CUDART"
  std::uint8_t uuid[16];
  unsigned slots;  // Including slot 0, which holds the size in bytes where there is one.
  bool has_size;
};
inline constexpr unsigned kExportTableCount = 9;
const ExportTableDescription& export_table(unsigned index) noexcept;

// Entries of the TOOLS_CB array: one flag per callback id of the client's own runtime, 523 in 13.0.
// It must never be smaller than that of a runtime yet to come.
inline constexpr unsigned kToolsCallbackFlags = 4'096;

}  // namespace gpurun::driver_abi
