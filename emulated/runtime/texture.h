// Texture and Surface: plain data that describes a texture or surface object to a kernel. Compiled
// code finds them in tables by the handles that programs pass to kernels.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

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
  // 0: the table holds kCapacity objects.
  std::uint64_t add(const T& object) {
    const std::lock_guard lock(mutex_);
    std::uint64_t index = 0;
    if (used_ < kCapacity && free_.size() < kRest) {
      index = used_++;
    } else if (!free_.empty()) {
      index = free_.front();
      free_.pop_front();
    } else {
      return 0;
    }
    std::atomic<Chunk*>& chunk = chunks_[index / kChunk];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      chunk.store(new Chunk, std::memory_order_release);
    }
    Slot& slot = (*chunk.load(std::memory_order_relaxed))[index % kChunk];
    slot.object = object;
    slot.uses = (slot.uses + 1) & 0xfffffff;
    const std::uint64_t handle = kTag << 48 | std::uint64_t{slot.uses} << 20 | index;
    slot.handle.store(handle, std::memory_order_release);
    return handle;
  }

  void remove(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    Slot* const slot = find_slot(handle);
    if (slot == nullptr) return;
    slot->handle.store(0, std::memory_order_release);
    free_.push_back(handle & (kCapacity - 1));
  }

  // nullptr: no object has this handle.
  const T* find(std::uint64_t handle) const {
    const Slot* const slot = find_slot(handle);
    return slot == nullptr ? nullptr : &slot->object;
  }

 private:
  static constexpr std::uint64_t kCapacity = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kChunk = 64;
  // Free slots that are kept unused before one of them is used again.
  static constexpr std::size_t kRest = 256;

  struct Slot {
    std::atomic<std::uint64_t> handle{0};
    std::uint32_t uses = 0;
    T object;
  };
  using Chunk = std::array<Slot, kChunk>;

  Slot* find_slot(std::uint64_t handle) const {
    const std::uint64_t index = handle & (kCapacity - 1);
    Chunk* const chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    if (chunk == nullptr || handle == 0) return nullptr;
    Slot& slot = (*chunk)[index % kChunk];
    return slot.handle.load(std::memory_order_acquire) == handle ? &slot : nullptr;
  }

  std::mutex mutex_;
  std::uint64_t used_ = 0;
  std::deque<std::uint64_t> free_;
  std::array<std::atomic<Chunk*>, kCapacity / kChunk> chunks_{};
};

using TextureSlots = ObjectSlots<Texture, 0x0671>;
using SurfaceSlots = ObjectSlots<Surface, 0x0672>;

// The tables of the process; never destroyed.
TextureSlots& texture_slots();
SurfaceSlots& surface_slots();

}  // namespace gpurun::emulated
