// Tile IR layout: the places of a Tile IR image's sections, and its end. Tile IR is NVIDIA's
// bytecode of tile kernels, which cuBLASLt makes at run time and passes without a length.
//
// Source: https://docs.nvidia.com/cuda/tile-ir/sections/bytecode.html and NVIDIA's repository
// cuda-tile.
//
// An image is eight bytes of magic, `u8 major, u8 minor, u16 tag`, then sections. A section begins
// with a byte. Its low seven bits are the section's number. Its highest bit says that an alignment
// follows. Then come the length and the alignment, both as variable-length numbers. The section's
// bytes follow after padding to a multiple of the alignment, counted from the image's first byte.
//
// Number 0 is the end and has nothing after it. Each section occurs at most once, so an image
// cannot be endless. Pure functions, safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::driver_abi {

// The bound of one section. Above that, CUDA_ERROR_INVALID_IMAGE. Sections of cuBLASLt have 600
// bytes.
inline constexpr std::uint64_t kTileIrSectionBytesMax = std::uint64_t{256} << 20;
// The bound of a section's alignment. Above that, CUDA_ERROR_INVALID_IMAGE. 4 and 8 occur.
inline constexpr std::uint64_t kTileIrAlignmentMax = 65'536;

enum class TileIrSection : std::uint8_t {
  kEnd = 0,
  kStrings = 1,
  kFunctions = 2,
  kDebug = 3,
  kConstants = 4,
  kTypes = 5,
  kGlobals = 6,
  kProducer = 7,
};
inline constexpr std::size_t kTileIrSections = 8;

struct TileIrLayout {
  std::uint8_t major;  // Of the bytecode: 13.1 is CUDA 13.1's.
  std::uint8_t minor;
  std::uint64_t bytes;  // Of the whole image, including the end mark.
  // By number, borrowed from the image. Missing sections are empty.
  std::array<ByteView, kTileIrSections> sections;

  ByteView section(TileIrSection which) const { return sections[static_cast<std::size_t>(which)]; }
};

// Whether the image begins with Tile IR's magic. `bytes` may claim more than is mapped: it is read
// front to back, and only up to the first difference.
bool is_tile_ir(ByteView bytes) noexcept;

// Walks the image that begins at bytes[0]. As for is_tile_ir(), `bytes` may hold more, or claim
// more than is mapped. Fails with CUDA_ERROR_INVALID_IMAGE, with the fault and its byte offset.
Result<TileIrLayout> tile_ir_layout(ByteView bytes);

}  // namespace gpurun::driver_abi
