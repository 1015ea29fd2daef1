// Whether a question about the compute capability comes from one of NVIDIA's math libraries, which
// on the emulated device are told another than applications (emulated_view.h, library_capability).
#pragma once

namespace gpurun::driver_abi {

// `return_address`: of the driver function that was called. A library with a runtime of its own
// inside asks from its own code; one that uses the shared runtime (cuRAND since 10.4.5) is found
// behind that on the calling thread's stack. At its start the shared runtime asks everything and
// keeps it for cudaGetDeviceProperties, so that no question of its start is a library's, whoever
// caused it. Any thread.
bool asked_by_math_library(const void* return_address) noexcept;

// The runtime whose code holds that address has started: it has asked for the integrity value,
// which it does after it has asked about the devices (measured, 13.0 to 13.5). Any thread.
void note_started_runtime(const void* return_address) noexcept;

}  // namespace gpurun::driver_abi
