// Memory pool attributes: payload of form kRaw of cuMemPoolGetAttribute and cuMemPoolSetAttribute,
// and the reply of the former. CUDA's values have 4 or 8 bytes, depending on the attribute. Here
// they always have 8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver_abi/semantics/pool_attributes.h"

namespace gpurun::protocol {

struct PoolAttributePayload {
  std::uint64_t pool = 0;       // Handle.
  std::uint32_t attribute = 0;  // CUmemPool_attribute.
  std::uint32_t reserved = 0;
  std::uint64_t value = 0;  // To set.
};
static_assert(sizeof(PoolAttributePayload) == 24);

using driver_abi::pool_attribute_bytes;

}  // namespace gpurun::protocol
