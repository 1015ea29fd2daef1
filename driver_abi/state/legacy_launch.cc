// LegacyLaunch: keeps the settings of the old launch calls.
#include "driver_abi/state/legacy_launch.h"

#include <cstring>

#include "driver_abi/semantics/launch_limits.h"

namespace gpurun::driver_abi {

CUresult LegacyLaunch::set_block_shape(int x, int y, int z) {
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  settings_.block[0] = static_cast<unsigned>(x);
  settings_.block[1] = static_cast<unsigned>(y);
  settings_.block[2] = static_cast<unsigned>(z);
  return CUDA_SUCCESS;
}

CUresult LegacyLaunch::set_shared_bytes(unsigned bytes) {
  const std::lock_guard lock(mutex_);
  settings_.shared_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult LegacyLaunch::set_parameter_bytes(unsigned bytes) {
  if (bytes > kKernelParameterBytesMax) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  parameter_bytes_ = bytes;
  return CUDA_SUCCESS;
}

CUresult LegacyLaunch::set_parameter(int offset, const void* value, std::size_t bytes) {
  if (offset < 0 || (value == nullptr && bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
  const auto start = static_cast<std::size_t>(offset);
  if (start > kKernelParameterBytesMax || bytes > kKernelParameterBytesMax - start) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  if (settings_.parameters.size() < start + bytes) settings_.parameters.resize(start + bytes);
  std::memcpy(settings_.parameters.data() + start, value, bytes);
  return CUDA_SUCCESS;
}

LegacyLaunch::Settings LegacyLaunch::copy() const {
  const std::lock_guard lock(mutex_);
  Settings settings = settings_;
  settings.parameters.resize(parameter_bytes_);
  return settings;
}

}  // namespace gpurun::driver_abi
