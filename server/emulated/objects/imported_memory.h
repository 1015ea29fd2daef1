// Imported memory: device memory of other processes, mapped here (cuIpcOpenMemHandle).
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"
#include "server/emulated/objects/context.h"
#include "server/emulated/objects/ipc_file.h"

namespace gpurun::emulated {

// Maps what `handle` names for `context`, or counts one opening more where that context has it
// already, and says where it is. MAP_FAILED: of a device that is not visible here, or there are no
// addresses; INVALID_CONTEXT: this process's own; INVALID_VALUE: it names nothing.
CUresult open_imported(const ContextPtr& context, const IpcHandle& handle, CUdeviceptr* address);

// Counts one opening less; the last one waits for the context's work and unmaps it. INVALID_VALUE:
// no memory of open_imported() begins there.
CUresult close_imported(CUdeviceptr address);

// Of a range of kind kImported that the registry has given up.
void unmap_imported(std::uint64_t base);

}  // namespace gpurun::emulated
