// Texture and Surface: plain data that describes a texture or surface object to a kernel. Compiled
// code finds them in tables by the handles that programs pass to kernels.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/slot_table.h"

namespace gpurun::emulated {

// The format of a texel's component in memory.
enum class TexelFormat : std::uint8_t { kU8, kS8, kU16, kS16, kU32, kS32, kF16, kF32 };

// How a fetch converts it (Driver API, cuTexObjectCreate). Floats are always read as floats, and
// 32-bit integers always as integers.
enum class TexelRead : std::uint8_t {
  kInteger,
  kNormalized,  // 8 and 16 bits, to [0, 1], or to [-1, 1] if signed.
  kSrgb,        // As kNormalized of 8 unsigned bits, with the first three components converted from
                // sRGB.
  kFloat,
};

enum class AddressMode : std::uint8_t { kWrap, kClamp, kMirror, kBorder };  // As CUaddress_mode.

constexpr std::uint32_t component_bytes(TexelFormat format) {
  return format <= TexelFormat::kS8                                   ? 1
         : format <= TexelFormat::kS16 || format == TexelFormat::kF16 ? 2
                                                                      : 4;
}

// One image, or all layers of one: rows of texels. No extent is 0. An image with fewer dimensions
// has 1 for the others. The faces of a cube and the layers of a layered image follow one another as
// slices.
struct TexelImage {
  std::uint64_t address = 0;
  std::uint32_t width = 1;
  std::uint32_t height = 1;
  std::uint32_t depth = 1;
  std::uint64_t row_pitch = 0;
  std::uint64_t slice_pitch = 0;
};

inline constexpr std::uint32_t kTextureLevelsMax = 18;  // The levels of the widest texture, 2^17
                                                        // texels.

struct Texture {
  TexelFormat format = TexelFormat::kF32;
  TexelRead read = TexelRead::kFloat;
  std::uint8_t channels = 1;  // 1, 2 or 4.
  // Memory without rows. It is only indexed, and reads as zero outside.
  bool is_linear = false;
  bool normalized = false;  // Coordinates in [0, 1].
  bool filter_linear = false;
  bool mipmap_linear = false;
  AddressMode address_mode[3] = {AddressMode::kClamp, AddressMode::kClamp, AddressMode::kClamp};
  float border[4] = {0, 0, 0, 0};
  float level_bias = 0;
  float level_min = 0;
  float level_max = 0;
  std::uint32_t level_count = 1;  // 1 to kTextureLevelsMax.
  std::array<TexelImage, kTextureLevelsMax> levels;
};

struct Surface {
  std::uint32_t element_bytes = 4;
  TexelImage image;
};

// Table of plain data by handles that compiled code can look up fast. It recognises a handle that
// was never given out or was removed. Any thread. Lookups take no lock. A handle is never used
// again. Its slot is used again only after all other free slots. So a lookup that races with
// remove() (an error of the program) finds the old or a newer object, never freed memory.
template <typename T, std::uint64_t kTag>
class ObjectSlots {
 public:
  // 0: the table holds kCapacity objects, or there is no memory.
  std::uint64_t add(const T& object) {
    const std::lock_guard lock(mutex_);
    const auto index = indexes_.take();
    if (!index) return 0;
    Slot* const slot = slots_.make(*index);
    if (slot == nullptr) {
      indexes_.undo_take();
      return 0;
    }
    slot->object = object;
    slot->uses = (slot->uses + 1) & 0xfffffff;
    const std::uint64_t handle = kTag << 48 | std::uint64_t{slot->uses} << 20 | *index;
    slot->owner.store(handle, std::memory_order_release);
    return handle;
  }

  void remove(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    Slot* const slot = slots_.find(handle);
    if (slot == nullptr) return;
    slot->owner.store(0, std::memory_order_release);
    indexes_.give_back(static_cast<std::uint32_t>(handle % kCapacity));
  }

  // nullptr: no object has this handle.
  const T* find(std::uint64_t handle) const {
    const Slot* const slot = slots_.find(handle);
    return slot == nullptr ? nullptr : &slot->object;
  }

 private:
  static constexpr std::size_t kCapacity = std::size_t{1} << 20;

  struct Slot {
    std::atomic<std::uint64_t> owner{0};
    std::uint32_t uses = 0;
    T object;
  };

  std::mutex mutex_;
  SlotTable<Slot, kCapacity, 64> slots_;  // Changed under mutex_.
  IndexPool<kCapacity, 255> indexes_;     // Guarded by mutex_.
};

using TextureSlots = ObjectSlots<Texture, 0x0671>;
using SurfaceSlots = ObjectSlots<Surface, 0x0672>;

// The tables of the process. Never destroyed.
TextureSlots& texture_slots();
SurfaceSlots& surface_slots();

}  // namespace gpurun::emulated
