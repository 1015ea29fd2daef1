// NVML front: its shared state, handles, and the checks that each entry makes.
#pragma once

#include <cstddef>

#include "driver_abi/nvml_source.h"

#define GPURUN_NVML_EXPORT extern "C" __attribute__((visibility("default")))

namespace gpurun::driver_abi::nvml {

// kNvmlUninitialized unless nvmlInit has succeeded more often than nvmlShutdown.
NvmlReturn initialized() noexcept;

NvmlHandle handle_of(unsigned index) noexcept;
// The index behind a handle. Returns kNvmlUninitialized, or kNvmlInvalidArgument for a wrong
// handle.
NvmlReturn index_of(NvmlHandle handle, unsigned* index) noexcept;
// As index_of(), and also returns the device's description.
NvmlReturn device_of(NvmlHandle handle, NvmlDevice* device, unsigned* index = nullptr) noexcept;

// Copies the whole text, or returns kNvmlInsufficientSize as NVML does.
NvmlReturn copy_text(const char* text, char* out, std::size_t out_bytes) noexcept;

// "GPU-42112233-4455-4677-8899-aabbccddee01", 41 bytes with the NUL.
inline constexpr std::size_t kUuidTextBytes = 41;
void uuid_text(const NvmlDevice& device, char* out) noexcept;

}  // namespace gpurun::driver_abi::nvml

// Returns the failure of `expression`, an NvmlReturn, from the enclosing entry.
#define GPURUN_NVML_TRY(expression)                                                          \
  do {                                                                                       \
    if (const ::gpurun::driver_abi::NvmlReturn nvml_return = (expression); nvml_return != 0) \
      return nvml_return;                                                                    \
  } while (false)
