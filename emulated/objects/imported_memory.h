// Imported memory: device memory of other processes, mapped into this one (cuIpcOpenMemHandle).
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"
#include "emulated/objects/context.h"
#include "emulated/objects/ipc_file.h"

namespace gpurun::emulated {

// Maps the memory that `handle` names for `context`, and returns its address. If the context has it
// already, only counts one more opening. MAP_FAILED: its device is not visible here, or no
// addresses are free. INVALID_CONTEXT: the memory is this process's own. INVALID_VALUE: the handle
// names nothing.
// `pool`: the handle of the imported pool (cuMemPoolImportPointer), or 0.
CUresult open_imported(const ContextPtr& context, const IpcHandle& handle, CUdeviceptr* address,
                       std::uint64_t pool = 0);

// Counts one opening less. The last call waits for the context's work and unmaps the memory.
// INVALID_VALUE: no memory from open_imported() begins at `address`.
CUresult close_imported(CUdeviceptr address);

// As close_imported(), but without the wait. For memory of another process's pool, once the stream
// has reached the free.
void free_imported(CUdeviceptr address);

// Unmaps a range of kind kImported that was removed from the registry.
void unmap_imported(std::uint64_t base);

}  // namespace gpurun::emulated
