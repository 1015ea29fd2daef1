// Device calls: RuntimeFunctions::device_call, the calls from kernels to the driver.
#pragma once

#include <cstdint>

#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

// On the fiber of the calling thread.
std::uint64_t device_call(ThreadContext* thread, std::uint32_t call,
                          const std::uint64_t* arguments);

}  // namespace gpurun::emulated
