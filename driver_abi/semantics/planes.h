// Planes: lines of memory at a pitch, as cuMemAllocPitch makes them and cuMemsetD2D* fills them.
//
// Source: CUDA Driver API manual, "Memory Management", at the named calls, and
// CUDA_MEMSET_NODE_PARAMS. The pitch of an allocation is the driver's choice. Devices choose a
// multiple of 512 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

inline constexpr std::size_t kPitchUnitBytes = 512;

// cuMemAllocPitch. INVALID_VALUE: nothing to allocate, or no element of 4, 8 or 16 bytes.
// OUT_OF_MEMORY: the size overflows. `*pitch` is set on success only.
constexpr CUresult choose_pitch(std::size_t width_bytes, std::size_t height, unsigned element_bytes,
                                std::size_t* pitch) noexcept {
  const bool element_known = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
  if (width_bytes == 0 || height == 0 || !element_known) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t chosen = (width_bytes + kPitchUnitBytes - 1) & ~(kPitchUnitBytes - 1);
  if (chosen < width_bytes || height > std::numeric_limits<std::size_t>::max() / chosen) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pitch = chosen;
  return CUDA_SUCCESS;
}

// A fill of `height` lines of `width` elements, both at least 1.
struct PlaneFill {
  std::uint64_t address = 0;
  std::uint64_t pitch = 0;  // Without meaning for one line.
  std::uint64_t element_bytes = 1;
  std::uint64_t width = 0;
  std::uint64_t height = 1;
};

// The bytes from its first to its last element. Nothing, and INVALID_VALUE for the program: a
// wrong address or pitch, or a size that overflows.
constexpr std::optional<std::uint64_t> span_of(const PlaneFill& fill) noexcept {
  if (fill.address == 0 || fill.address % fill.element_bytes != 0) return {};
  std::uint64_t row = 0, bytes = 0;
  if (__builtin_mul_overflow(fill.width, fill.element_bytes, &row)) return {};
  if (fill.height > 1 && (fill.pitch < row || fill.pitch % fill.element_bytes != 0)) return {};
  if (__builtin_mul_overflow(fill.height > 1 ? fill.pitch : 0, fill.height - 1, &bytes)) return {};
  if (__builtin_add_overflow(bytes, row, &bytes)) return {};
  return bytes;
}

// The fill of a graph's node. Nothing, and INVALID_VALUE for the program: an element of another
// size than 1, 2 or 4, or nothing to fill.
constexpr std::optional<PlaneFill> fill_of(const CUDA_MEMSET_NODE_PARAMS& node) noexcept {
  const unsigned element = node.elementSize;
  if ((element != 1 && element != 2 && element != 4) || node.width == 0 || node.height == 0) {
    return {};
  }
  return PlaneFill{node.dst, node.pitch, element, node.width, node.height};
}

}  // namespace gpurun::driver_abi
