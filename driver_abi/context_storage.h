// Values that libraries attach to a CUDA context (the CLS export table): CUDA's runtime keeps its
// per-context state there and asks for it at the start of every call.
//
// One map for this copy of the library, immortal: the runtime still calls after our fini. Reading
// takes no lock. Safe from any thread; a destructor runs without any lock held.
#pragma once

#include <cstddef>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

using ContextStorageDestructor = void (*)(CUcontext context, void* key, void* value);

// Live values of one process; CUDA_ERROR_OUT_OF_MEMORY beyond. A runtime copy needs one a context.
inline constexpr std::size_t kContextStorageMax = 65'536;

// Sets or replaces the value of (context, key). No destructor runs for a value that is replaced.
CUresult put_context_storage(CUcontext context, void* key, void* value,
                             ContextStorageDestructor destructor) noexcept;

// CUDA_ERROR_INVALID_HANDLE, as the driver answers, when there is no such value.
CUresult get_context_storage(CUcontext context, void* key, void** value) noexcept;

// Forgets the value without calling its destructor.
CUresult erase_context_storage(CUcontext context, void* key) noexcept;

// For the owner of contexts: forgets all values of `context` and calls their destructors, in the
// order in which they were set. Call it in cuDevicePrimaryCtxReset, when the last retain of a
// primary context is released, and in cuCtxDestroy, while the context still answers; without it
// the runtime keeps stale state (measured).
void drop_context_storage(CUcontext context) noexcept;

}  // namespace gpurun::driver_abi
