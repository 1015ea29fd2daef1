// Memory pool attributes: payload of form kRaw of cuMemPoolGetAttribute and cuMemPoolSetAttribute,
// and the reply of the former. CUDA's values have 4 or 8 bytes, depending on the attribute. Here
// they always have 8.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::protocol {

struct PoolAttributePayload {
  std::uint64_t pool = 0;       // Handle.
  std::uint32_t attribute = 0;  // CUmemPool_attribute.
  std::uint32_t reserved = 0;
  std::uint64_t value = 0;  // To set.
};
static_assert(sizeof(PoolAttributePayload) == 24);

// Size of the program's value. 0 for an attribute that this version does not know. Source: CUDA
// driver API manual, "CUmemPool_attribute": int up to 3, cuuint64_t up to 8.
constexpr std::size_t pool_attribute_bytes(std::uint32_t attribute) noexcept {
  return attribute >= 1 && attribute <= 3 ? 4 : attribute >= 4 && attribute <= 8 ? 8 : 0;
}

}  // namespace gpurun::protocol
