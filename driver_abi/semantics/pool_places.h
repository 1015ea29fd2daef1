// Pool places: which memory a pool may manage here.
//
// Source: CUDA Driver API manual, cuMemPoolCreate and cuMemGetMemPool. Pools of host and of managed
// memory are refused as by a driver without them. Their memory would have to be the client's.
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

// `location` is a CUmemLocationType, and `allocation` a CUmemAllocationType. 0 for device memory.
// The caller checks the device's number.
constexpr int check_pool_place(std::uint32_t location, std::uint32_t allocation) noexcept {
  if (allocation == CU_MEM_ALLOCATION_TYPE_MANAGED) {
    return location <= CU_MEM_LOCATION_TYPE_HOST_NUMA ? CUDA_ERROR_NOT_SUPPORTED
                                                      : CUDA_ERROR_INVALID_VALUE;
  }
  if (allocation != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  switch (location) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace gpurun::driver_abi
