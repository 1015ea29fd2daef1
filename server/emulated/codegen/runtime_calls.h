// The functions that CUDA's compiler declares and the device run time provides.
#pragma once

#include <string_view>

namespace gpurun::emulated {

// vprintf, malloc, free, __assertfail (CUDA C++ Programming Guide, "Formatted output", "Dynamic
// global memory allocation", "Assertion"), and what the device runtime's functions for cooperative
// groups call (cuda_device_runtime_api.h, cudaCGSynchronize), and all of
// is_device_call().
bool is_runtime_call(std::string_view function);

// What the device runtime leaves to the driver: __cuda_syscall_cnpv2LaunchDeviceV2 and so on.
bool is_device_call(std::string_view function);

// Functions of the device runtime itself (libcudadevrt), which a program links with: cudaMalloc,
// __cudaCDP2LaunchDeviceV2.
bool is_device_runtime(std::string_view function);

}  // namespace gpurun::emulated
