// The functions that CUDA's compiler declares and the device run time provides.
#pragma once

#include <string_view>

namespace gpurun::emulated {

// vprintf, malloc, free, __assertfail (CUDA C++ Programming Guide, "Formatted output", "Dynamic
// global memory allocation", "Assertion"), and what the device runtime's functions for cooperative
// groups call (cuda_device_runtime_api.h, cudaCGSynchronize).
bool is_runtime_call(std::string_view function);

// Functions of the device runtime for kernels that launch kernels: not supported.
bool is_device_launch(std::string_view function);

}  // namespace gpurun::emulated
