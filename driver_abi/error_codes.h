// Error codes: names and descriptions of CUresult values, for cuGetErrorName, cuGetErrorString and
// messages.
//
// The names are facts of the ABI (CUDA Driver API manual, "CUresult"). The descriptions are ours.
// Pure functions, safe from any thread. The texts live forever.
#pragma once

#include <cstddef>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

// "CUDA_ERROR_INVALID_VALUE". nullptr for a number that is not a CUresult.
const char* error_name(CUresult result) noexcept;
// A short sentence. nullptr for a number that is not a CUresult.
const char* error_string(CUresult result) noexcept;

// As cuGetErrorName and cuGetErrorString. For an unknown number they return INVALID_VALUE and set
// `*text` to NULL.
CUresult get_error_name(CUresult result, const char** text) noexcept;
CUresult get_error_string(CUresult result, const char** text) noexcept;

// All values in ascending order, for tests and tables in documentation.
std::size_t error_code_count() noexcept;
CUresult error_code(std::size_t index) noexcept;

}  // namespace gpurun::driver_abi
