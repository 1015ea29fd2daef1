// Where the sections of a Tile IR image are, and with that where it ends: NVIDIA's bytecode of tile
// kernels, which cuBLASLt makes at run time and passes without a length.
//
// Source: https://docs.nvidia.com/cuda/tile-ir/sections/bytecode.html and NVIDIA's repository
// cuda-tile. Eight bytes of magic, `u8 major, u8 minor, u16 tag`, then sections: a byte of which
// the low seven bits are the section's number and the highest says that an alignment follows, the
// length as a variable-length number, the alignment likewise, padding up to a multiple of it
// (counted from the image's first byte), and the bytes. Number 0 is the end and has nothing behind
// it. Each section occurs at most once, so an image cannot be endless. Pure functions, safe from
// any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::driver_abi {

// Of one section; CUDA_ERROR_INVALID_IMAGE beyond. Those that cuBLASLt makes have 600 bytes.
inline constexpr std::uint64_t kTileIrSectionBytesMax = std::uint64_t{256} << 20;
// Of a section's start; CUDA_ERROR_INVALID_IMAGE beyond. 4 and 8 occur.
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
  std::uint64_t bytes;  // Of the whole image, with the end's mark.
  // By number, borrowed from the image; those that are missing are empty.
  std::array<ByteView, kTileIrSections> sections;

  ByteView section(TileIrSection which) const { return sections[static_cast<std::size_t>(which)]; }
};

// Whether the image begins with Tile IR's magic. `bytes` may claim more than is mapped: it is read
// front to back, and no further than it agrees.
bool is_tile_ir(ByteView bytes) noexcept;

// Walks the image that begins at bytes[0]; `bytes` may hold more, or claim more than is mapped,
// like is_tile_ir's. CUDA_ERROR_INVALID_IMAGE with what is wrong and at which byte.
Result<TileIrLayout> tile_ir_layout(ByteView bytes);

}  // namespace gpurun::driver_abi
