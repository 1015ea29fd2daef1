// HostBox: the program's side of a copy. Lines of `width` bytes, with or without gaps between them.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace gpurun::client {

struct HostBox {
  std::uint64_t address = 0;
  std::uint64_t line_pitch = 0;   // Bytes from line to line.
  std::uint64_t slice_pitch = 0;  // Bytes from slice to slice.
  std::uint64_t width = 0;
  std::uint64_t lines = 1;
  std::uint64_t slices = 1;

  static HostBox of(MutableBytes bytes) noexcept {
    return {reinterpret_cast<std::uintptr_t>(bytes.data()),
            bytes.size(),
            bytes.size(),
            bytes.size(),
            1,
            1};
  }
  std::uint64_t bytes() const noexcept { return width * lines * slices; }
  // Returns whether the box is one run of bytes without gaps.
  bool is_dense() const noexcept {
    return (lines == 1 || line_pitch == width) && (slices == 1 || slice_pitch == width * lines);
  }
  // The memory from the first byte to the last, gaps included.
  MutableBytes reach() const noexcept {
    const std::uint64_t bytes =
        width == 0 ? 0 : (slices - 1) * slice_pitch + (lines - 1) * line_pitch + width;
    return {reinterpret_cast<std::byte*>(address), static_cast<std::size_t>(bytes)};
  }
};

// Copies between `bytes`, which have no gaps, and the box from its byte `offset` on.
void read_box(const HostBox& box, std::uint64_t offset, MutableBytes bytes) noexcept;
void write_box(const HostBox& box, std::uint64_t offset, ByteView bytes) noexcept;

}  // namespace gpurun::client
