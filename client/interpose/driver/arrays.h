// Arrays: what the client keeps of CUDA arrays and mipmapped arrays. They are the objects of kArray
// and kMipmappedArray handles. An array that another call returned (a plane, a texture reference's
// array) has no object, so the worker is asked about it.
//
// Arrays have no addresses in the client, with or without windows. They are handles only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "client/interpose/call/forward.h"
#include "client/interpose/call/sound.h"

namespace gpurun::client::interpose {

// In bytes, lines and slices. The slices of a layered array are its layers.
struct ArrayBox {
  std::uint64_t x = 0, y = 0, z = 0;
  std::uint64_t width = 0, lines = 0, slices = 0;
};

struct Array {
  Handle mipmapped = 0;             // The mipmapped array that has this level. 0: none.
  std::uint64_t element_bytes = 0;  // 0: only the driver knows the sizes of this format.
  std::uint64_t width = 0;          // Bytes of a line.
  std::uint64_t lines = 0;
  std::uint64_t slices = 0;
  // The driver's descriptions, kept from the first question on. They never change.
  std::atomic<bool> flat_known{false}, full_known{false};
  CUDA_ARRAY_DESCRIPTOR flat{};
  CUDA_ARRAY3D_DESCRIPTOR full{};
  Array* next_unused = nullptr;
};

struct MipmappedArray {
  static constexpr std::size_t kLevelsMax = 32;
  CUDA_ARRAY3D_DESCRIPTOR described{};
  std::array<std::atomic<Handle>, kLevelsMax> levels{};  // 0: not asked for yet.
  MipmappedArray* next_unused = nullptr;
};

// Whether the box lies inside a live array and begins at an element.
Sound check_array_box(const EntryContext& here, Handle array, const ArrayBox& box) noexcept;
// Whether elements of one array can be copied to the other. They must have the same size (manual,
// cuMemcpyAtoA).
Sound check_array_pair(const EntryContext& here, Handle one, Handle other) noexcept;

}  // namespace gpurun::client::interpose
