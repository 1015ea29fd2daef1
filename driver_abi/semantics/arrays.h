// Arrays: sizes of CUDA arrays, the levels of mipmapped ones, and the boxes inside them.
//
// Source: CUDA Driver API manual, cuArray3DCreate, cuMipmappedArrayCreate and cuMemcpy2D.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

// Bytes of one channel. 0: a format without such a size (planes, compressed blocks).
constexpr std::uint32_t channel_bytes(CUarray_format format) noexcept {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

// The depth of such an array counts layers or faces.
constexpr bool has_layers(const CUDA_ARRAY3D_DESCRIPTOR& array) noexcept {
  return (array.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

// The number of levels that cuMipmappedArrayCreate makes of a requested number: at least 1, and at
// most as many as halve the longest extent down to 1.
constexpr unsigned mipmap_levels(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned wanted) noexcept {
  std::uint64_t longest = std::max<std::uint64_t>(array.Width, array.Height);
  if (!has_layers(array)) longest = std::max<std::uint64_t>(longest, array.Depth);
  return std::max(1u, std::min(wanted, static_cast<unsigned>(std::bit_width(longest))));
}

// The description of a level, `level` < 64. Level 0 is the array itself. Layers keep their number.
constexpr CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR& array,
                                           unsigned level) noexcept {
  const auto smaller = [level](std::size_t extent) {
    return extent == 0 ? 0 : std::max<std::size_t>(1, extent >> level);
  };
  CUDA_ARRAY3D_DESCRIPTOR out = array;
  out.Width = smaller(array.Width);
  out.Height = smaller(array.Height);
  if (!has_layers(array)) out.Depth = smaller(array.Depth);
  return out;
}

// An array in bytes, lines and slices, each at least 1.
struct ArrayExtent {
  std::uint64_t element_bytes = 1;
  std::uint64_t width = 0;
  std::uint64_t lines = 1;
  std::uint64_t slices = 1;
};

// A box in bytes, lines and slices.
struct ArrayPart {
  std::uint64_t x = 0, y = 0, z = 0;
  std::uint64_t width = 0, lines = 0, slices = 0;
};

// Whether the box lies in the array and begins at an element. The manual forbids a box to begin
// inside an element, but not to end there.
constexpr bool is_part_of(const ArrayExtent& array, const ArrayPart& box) noexcept {
  const auto inside = [](std::uint64_t from, std::uint64_t count, std::uint64_t size) {
    return from <= size && count <= size - from;
  };
  return box.x % array.element_bytes == 0 && inside(box.x, box.width, array.width) &&
         inside(box.y, box.lines, array.lines) && inside(box.z, box.slices, array.slices);
}

}  // namespace gpurun::driver_abi
