// Surface instructions for compiled code: suld, sust and suq of one thread.
#pragma once

#include <cstdint>
#include <span>

#include "emulated/runtime/native_functions.h"

namespace gpurun::emulated {

// What an access beyond the edge does (PTX ISA, sections 9.7.11.1 and 9.7.11.2).
enum class OutsideSurface : std::uint8_t {
  kTrap,   // Ends the grid.
  kClamp,  // Accesses the nearest place inside.
  kZero,   // A load returns zeros, a store does nothing.
};

// One instruction, as a constant in translated code.
struct SurfaceOperation {
  std::uint8_t dimensions = 2;
  bool layered = false;
  OutsideSurface outside = OutsideSurface::kTrap;
  std::uint8_t bytes = 4;  // Of all components: 1 to kSurfaceBytesMax.

  std::uint32_t packed() const {
    return dimensions | layered << 4 | static_cast<std::uint32_t>(outside) << 8 | bytes << 16;
  }
  static SurfaceOperation unpacked(std::uint32_t word) {
    return {static_cast<std::uint8_t>(word & 15), (word >> 4 & 1) != 0,
            static_cast<OutsideSurface>(word >> 8 & 255), static_cast<std::uint8_t>(word >> 16)};
  }
};

enum class SurfaceQuery : std::uint32_t { kWidth, kHeight, kDepth, kLayers };

// The words of a place: the layer, then x in bytes, y and z.
inline constexpr unsigned kSurfaceInputWords = 4;
inline constexpr unsigned kSurfaceBytesMax = 16;

// C functions. Each returns 0, or what is wrong as a DeviceFault (device_abi.h).
//   u32 gpurun_surface_load(u64 surface, u32 operation, const u32* where, u8* out)
//   u32 gpurun_surface_store(u64 surface, u32 operation, const u32* where, const u8* in)
//   u32 gpurun_surface_query(u64 surface, u32 query, u32* out)
std::span<const NativeFunction> surface_functions();

}  // namespace gpurun::emulated
