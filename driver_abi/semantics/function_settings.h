// Function settings: which attributes of a function a program may set, and to which values
// (cuFuncSetAttribute, cuKernelSetAttribute).
//
// Source: CUDA Driver API manual, "CUfunction_attribute" and "CUfunc_cache". Each attribute that is
// not listed there as settable, and each value out of range, is INVALID_VALUE.
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

// What bounds the values of one function. A bound that is unknown is not checked, and the driver
// decides.
struct SettingBounds {
  static constexpr int kUnknown = -1;
  // The device's limit of a block, less the function's static part. May be less than 0.
  int dynamic_shared_bytes = 0;
  bool dynamic_shared_known = false;
  // The largest extent of a cluster.
  int cluster_extent = kUnknown;
  // Extents that were fixed at compile time cannot be changed.
  bool cluster_fixed[3] = {};
  // The last CUclusterSchedulingPolicy of the device.
  int scheduling_policy = kUnknown;
};

CUresult check_function_setting(const SettingBounds& bounds, CUfunction_attribute id,
                                int value) noexcept;

// Both are preferences of a context, a function or a kernel. Not so: INVALID_VALUE.
constexpr bool is_cache_config(CUfunc_cache config) noexcept {
  return static_cast<std::uint32_t>(config) <= CU_FUNC_CACHE_PREFER_EQUAL;
}
constexpr bool is_shared_config(CUsharedconfig config) noexcept {
  return static_cast<std::uint32_t>(config) <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
}

}  // namespace gpurun::driver_abi
