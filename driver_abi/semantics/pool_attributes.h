// Pool attributes: the size of each attribute of a memory pool, and which values it may be set to.
//
// Source: CUDA Driver API manual, "CUmemPool_attribute" and cuMemPoolSetAttribute. An int up to 3,
// a cuuint64_t up to 8. Later attributes are not known here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

// Size of the program's value. 0: an attribute that this version does not know, INVALID_VALUE.
constexpr std::size_t pool_attribute_bytes(std::uint32_t attribute) noexcept {
  if (attribute < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES) return 0;
  if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) return 4;
  return attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH ? 8 : 0;
}

// Not so: INVALID_VALUE. The reserved and used amounts may not be set. Their highest values may
// only be set to 0.
constexpr bool is_pool_setting(std::uint32_t attribute, std::uint64_t value) noexcept {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return false;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return value == 0;
    default:
      return pool_attribute_bytes(attribute) != 0;
  }
}

}  // namespace gpurun::driver_abi
