// The functions that CUDA's compiler declares and the device run time provides.
#pragma once

#include <string_view>

namespace gpurun::emulated {

// vprintf, malloc, free, __assertfail (CUDA C++ Programming Guide, "Formatted output", "Dynamic
// global memory allocation", "Assertion").
bool is_runtime_call(std::string_view function);

// Functions of the device runtime for kernels that launch kernels: not supported.
bool is_device_launch(std::string_view function);

}  // namespace gpurun::emulated
