// Library view: whether a query of the compute capability comes from one of NVIDIA's math
// libraries. On the emulated device they get another capability than applications (emulated_view.h,
// library_capability).
#pragma once

namespace gpurun::driver_abi {

// `return_address`: the return address of the called driver function. A library with an embedded
// runtime calls from its own code. A library that uses the shared runtime (cuRAND since 10.4.5) is
// found behind that runtime on the calling thread's stack.
//
// At its start the shared runtime queries everything and keeps it for cudaGetDeviceProperties. So
// no query of its start counts as a library's, whatever caused the start. Any thread.
bool asked_by_math_library(const void* return_address) noexcept;

// Notes that the runtime with code at that address has started. It has asked for the integrity
// value, which it does after its queries of the devices (measured, 13.0 to 13.5). Any thread.
void note_started_runtime(const void* return_address) noexcept;

}  // namespace gpurun::driver_abi
