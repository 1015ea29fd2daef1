// Context storage: the values that libraries attach to a CUDA context (the CLS export table).
// CUDA's runtime keeps its per-context state there and asks for it at the start of every call.
//
// Each copy of the library has one immortal map, because the runtime still calls after our fini.
// Reading takes no lock. Safe from any thread. A destructor runs without any lock held.
#pragma once

#include <cstddef>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

using ContextStorageDestructor = void (*)(CUcontext context, void* key, void* value);

// The most live values of one process. Above that, CUDA_ERROR_OUT_OF_MEMORY. Each copy of the
// runtime needs one value for each context.
inline constexpr std::size_t kContextStorageMax = 65'536;

// Sets or replaces the value of (context, key). A replaced value's destructor does not run.
CUresult put_context_storage(CUcontext context, void* key, void* value,
                             ContextStorageDestructor destructor) noexcept;

// Returns CUDA_ERROR_INVALID_HANDLE, as the driver does, when there is no such value.
CUresult get_context_storage(CUcontext context, void* key, void** value) noexcept;

// Removes the value without calling its destructor.
CUresult erase_context_storage(CUcontext context, void* key) noexcept;

// For the owner of contexts. Removes all values of `context` and calls their destructors, in the
// order in which the values were set. Call it in cuDevicePrimaryCtxReset, at the last release of a
// primary context, and in cuCtxDestroy, while the context still answers. Without this call the
// runtime keeps stale state (measured).
void drop_context_storage(CUcontext context) noexcept;

}  // namespace gpurun::driver_abi
