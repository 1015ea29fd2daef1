// RuntimeCalls: what CUDA's shared runtime asks of the driver, seen from inside of this process.
//
// The runtime looks up one function with dlsym(), cuGetProcAddress_v2, and gets all others from it.
// This program exports a dlsym() of its own that puts a recording one in its place.
#pragma once

#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace gpurun::probe::runtime_calls {

// From now on. Before the runtime's first call.
void record();
// Calls since the last take(), of the functions that are recorded: "cuLaunchKernel 1
// CUDA_ERROR_INVALID_VALUE".
std::vector<std::string> take();

}  // namespace gpurun::probe::runtime_calls
