// Addresses of surface accesses.
#include "emulated/runtime/surface_functions.h"

#include <algorithm>
#include <cstring>

#include "emulated/runtime/device_abi.h"
#include "emulated/runtime/texture.h"

namespace gpurun::emulated {
namespace {

// The address of an access. 0: it is outside.
std::uint64_t place(const Surface& surface, const SurfaceOperation& operation,
                    const std::uint32_t* where) {
  const TexelImage& image = surface.image;
  const std::int64_t row_bytes = std::int64_t{image.width} * surface.element_bytes;
  // The last place of each dimension at which the access is still inside.
  const std::int64_t last[3] = {row_bytes - operation.bytes, std::int64_t{image.height} - 1,
                                std::int64_t{image.depth} - 1};
  std::int64_t at[3] = {0, 0, 0};
  for (unsigned i = 0; i < operation.dimensions; ++i) {
    at[i] = static_cast<std::int32_t>(where[1 + i]);
  }
  if (operation.layered) at[2] = where[0];
  if (last[0] < 0) return 0;
  for (int i = 0; i < 3; ++i) {
    if (at[i] >= 0 && at[i] <= last[i]) continue;
    if (operation.outside != OutsideSurface::kClamp) return 0;
    at[i] = std::max<std::int64_t>(0, std::min(at[i], last[i]));
  }
  return image.address + static_cast<std::uint64_t>(at[2]) * image.slice_pitch +
         static_cast<std::uint64_t>(at[1]) * image.row_pitch + static_cast<std::uint64_t>(at[0]);
}

std::uint32_t fault(DeviceFault which) { return static_cast<std::uint32_t>(which); }

std::uint32_t outside(const SurfaceOperation& operation) {
  return fault(operation.outside == OutsideSurface::kZero ? DeviceFault::kNone
                                                          : DeviceFault::kOutsideSurface);
}

std::uint32_t load(std::uint64_t handle, std::uint32_t word, const std::uint32_t* where,
                   std::uint8_t* out) {
  const Surface* const surface = surface_slots().find(handle);
  if (surface == nullptr) return fault(DeviceFault::kNoSurface);
  const SurfaceOperation operation = SurfaceOperation::unpacked(word);
  const std::uint64_t address = place(*surface, operation, where);
  if (address == 0) {
    std::memset(out, 0, operation.bytes);
    return outside(operation);
  }
  std::memcpy(out, reinterpret_cast<const void*>(address), operation.bytes);
  return 0;
}

std::uint32_t store(std::uint64_t handle, std::uint32_t word, const std::uint32_t* where,
                    const std::uint8_t* in) {
  const Surface* const surface = surface_slots().find(handle);
  if (surface == nullptr) return fault(DeviceFault::kNoSurface);
  const SurfaceOperation operation = SurfaceOperation::unpacked(word);
  const std::uint64_t address = place(*surface, operation, where);
  if (address == 0) return outside(operation);
  std::memcpy(reinterpret_cast<void*>(address), in, operation.bytes);
  return 0;
}

std::uint32_t query(std::uint64_t handle, std::uint32_t what, std::uint32_t* out) {
  const Surface* const surface = surface_slots().find(handle);
  if (surface == nullptr) return fault(DeviceFault::kNoSurface);
  switch (static_cast<SurfaceQuery>(what)) {
    case SurfaceQuery::kWidth:
      *out = surface->image.width;
      break;
    case SurfaceQuery::kHeight:
      *out = surface->image.height;
      break;
    case SurfaceQuery::kDepth:
    case SurfaceQuery::kLayers:
      *out = surface->image.depth;
      break;
  }
  return 0;
}

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

SurfaceSlots& surface_slots() {
  static auto* const slots = new SurfaceSlots;
  return *slots;
}

std::span<const NativeFunction> surface_functions() {
  static const NativeFunction kFunctions[] = {
      {"gpurun_surface_load", address_of(&load)},
      {"gpurun_surface_store", address_of(&store)},
      {"gpurun_surface_query", address_of(&query)},
  };
  return kFunctions;
}

}  // namespace gpurun::emulated
