// Runtime calls: the functions that CUDA's compiler declares and the device run time provides.
#pragma once

#include <string_view>

namespace gpurun::emulated {

// Whether it is vprintf, malloc, free, __assertfail, a function behind cooperative groups, or an
// is_device_call(). Sources: CUDA C++ Programming Guide, "Formatted output", "Dynamic global memory
// allocation", "Assertion". cuda_device_runtime_api.h, cudaCGSynchronize.
bool is_runtime_call(std::string_view function);

// Whether the device runtime leaves the function to the driver: __cuda_syscall_cnpv2LaunchDeviceV2
// and others.
bool is_device_call(std::string_view function);

// Whether it is a function of the device runtime itself (libcudadevrt), which a program links with:
// cudaMalloc, __cudaCDP2LaunchDeviceV2.
bool is_device_runtime(std::string_view function);

}  // namespace gpurun::emulated
