// RuntimeCalls: records which driver functions CUDA's shared runtime calls in this process.
//
// The runtime looks up only cuGetProcAddress_v2 with dlsym(), and gets all other functions from it.
// This program exports a dlsym() of its own that returns a recording replacement.
#pragma once

#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace gpurun::probe::runtime_calls {

// Starts recording. Call before the runtime's first call.
void record();
// Returns the recorded calls since the last take(): "cuLaunchKernel 1 CUDA_ERROR_INVALID_VALUE".
std::vector<std::string> take();

}  // namespace gpurun::probe::runtime_calls
