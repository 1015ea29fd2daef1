// TextureObject and SurfaceObject: the results of cuTexObjectCreate and cuSurfObjectCreate. A
// program's handle is the object's number in the kernels' tables (runtime/texture.h), because it is
// passed to kernels as plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "driver_abi/cuda_abi.h"
#include "emulated/objects/handle_table.h"
#include "emulated/runtime/texture.h"

namespace gpurun::emulated {

// Constant. Any thread. Kernels find it as long as it lives.
class TextureObject final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kTextureObject;

  TextureObject(std::uint64_t slot, const CUDA_RESOURCE_DESC& resource,
                const CUDA_TEXTURE_DESC& sampling, const CUDA_RESOURCE_VIEW_DESC* view);
  ~TextureObject() override;

  std::uint64_t slot() const { return slot_; }
  const CUDA_RESOURCE_DESC& resource() const { return resource_; }
  const CUDA_TEXTURE_DESC& sampling() const { return sampling_; }
  // nullptr: it was made without one.
  const CUDA_RESOURCE_VIEW_DESC* view() const { return has_view_ ? &view_ : nullptr; }

 private:
  const std::uint64_t slot_;
  const CUDA_RESOURCE_DESC resource_;
  const CUDA_TEXTURE_DESC sampling_;
  CUDA_RESOURCE_VIEW_DESC view_{};
  const bool has_view_;
};

class SurfaceObject final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kSurfaceObject;

  SurfaceObject(std::uint64_t slot, const CUDA_RESOURCE_DESC& resource);
  ~SurfaceObject() override;

  std::uint64_t slot() const { return slot_; }
  const CUDA_RESOURCE_DESC& resource() const { return resource_; }

 private:
  const std::uint64_t slot_;
  const CUDA_RESOURCE_DESC resource_;
};

// The objects by the numbers that programs use. Any thread.
class ObjectsBySlot {
 public:
  void add(std::uint64_t slot, std::uint64_t handle);
  void remove(std::uint64_t slot);
  // The handle in the HandleTable. 0: no such object.
  std::uint64_t find(std::uint64_t slot) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint64_t> handles_;
};

// The table of textures and surfaces, which never have equal numbers. Never destroyed.
ObjectsBySlot& objects_by_slot();

// nullptr: no live T has this number.
template <typename T>
std::shared_ptr<T> find_by_slot(std::uint64_t slot) {
  return handles().find<T>(objects_by_slot().find(slot));
}

// Converts the program's descriptions to those of kernels. INVALID_VALUE. NOT_SUPPORTED for
// compressed views, and for linear filtering across a cube's edges.
CUresult describe_texture(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& sampling,
                          const CUDA_RESOURCE_VIEW_DESC* view, Texture* out);
CUresult describe_surface(const CUDA_RESOURCE_DESC& resource, Surface* out);

}  // namespace gpurun::emulated
