// Texture instructions for compiled code: tex, tld4 and txq of one thread.
//
// CUDA C++ Programming Guide, "Texture Fetching", defines how a coordinate finds its texels. It
// covers nearest-point sampling, linear filtering, addressing modes and layers. The fraction of
// linear filtering is 9-bit fixed point with 8 bits of fraction. The largest coordinate selects a
// cube's face, the first of equal ones.
#pragma once

#include <cstdint>
#include <span>

#include "emulated/runtime/native_functions.h"

namespace gpurun::emulated {

enum class LevelMode : std::uint8_t { kBase, kLevel, kGradient };

// One instruction, as a constant in translated code.
struct TextureOperation {
  std::uint8_t dimensions = 2;  // 1 to 3. 3 for a cube.
  bool layered = false;
  bool cube = false;
  bool indexed = false;  // Coordinates and level are integers: no filtering.
  bool half = false;     // Results are two words of two f16.
  LevelMode level = LevelMode::kBase;
  std::uint8_t component = 0;  // tld4

  std::uint32_t packed() const {
    return dimensions | layered << 4 | cube << 5 | indexed << 6 | half << 7 |
           static_cast<std::uint32_t>(level) << 8 | static_cast<std::uint32_t>(component) << 12;
  }
  static TextureOperation unpacked(std::uint32_t word) {
    return {static_cast<std::uint8_t>(word & 15),
            (word >> 4 & 1) != 0,
            (word >> 5 & 1) != 0,
            (word >> 6 & 1) != 0,
            (word >> 7 & 1) != 0,
            static_cast<LevelMode>(word >> 8 & 15),
            static_cast<std::uint8_t>(word >> 12)};
  }
};

enum class TextureQuery : std::uint32_t {
  kWidth,
  kHeight,
  kDepth,
  kLayers,
  kLevels,
  kNormalized,
};

// Words of a fetch's input.
inline constexpr unsigned kTextureLayer = 0;
inline constexpr unsigned kTextureCoordinates = 1;  // Three.
inline constexpr unsigned kTextureLevel = 4;        // Or the gradients: three each for x and y.
inline constexpr unsigned kTextureInputWords = 10;

// C functions. Each returns 0, or what is wrong as a DeviceFault (device_abi.h).
//   u32 gpurun_texture_fetch(u64 texture, u32 operation, const u32* in, u32* out)   4 words
//   u32 gpurun_texture_gather(u64 texture, u32 operation, const u32* in, u32* out)  4 words
//   u32 gpurun_texture_query(u64 texture, u32 query, u32 level, u32* out)           1 word
std::span<const NativeFunction> texture_functions();

}  // namespace gpurun::emulated
