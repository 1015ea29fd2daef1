// Borrowed and owned bytes. A ByteView is borrowed until the call returns, unless a comment gives a
// longer time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace gpurun {

using ByteView = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;
using Bytes = std::vector<std::byte>;

inline ByteView byte_view(const void* start, std::size_t byte_count) {
  return {static_cast<const std::byte*>(start), byte_count};
}
inline MutableBytes mutable_bytes(void* start, std::size_t byte_count) {
  return {static_cast<std::byte*>(start), byte_count};
}

// The bytes of one object. T must be trivially copyable.
template <typename T>
ByteView bytes_of(const T& object) {
  static_assert(std::is_trivially_copyable_v<T>);
  return byte_view(&object, sizeof object);
}

}  // namespace gpurun
