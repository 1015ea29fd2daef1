// Little-endian: reads of little-endian numbers at any alignment. The caller checks the bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"

namespace gpurun::driver_abi {

template <typename T>
T load_unaligned(ByteView bytes, std::size_t offset) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "CUDA's hosts are little-endian");
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}
inline std::uint16_t load_u16(ByteView bytes, std::size_t offset) {
  return load_unaligned<std::uint16_t>(bytes, offset);
}
inline std::uint32_t load_u32(ByteView bytes, std::size_t offset) {
  return load_unaligned<std::uint32_t>(bytes, offset);
}
inline std::uint64_t load_u64(ByteView bytes, std::size_t offset) {
  return load_unaligned<std::uint64_t>(bytes, offset);
}

}  // namespace gpurun::driver_abi
