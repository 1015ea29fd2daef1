// Array and MipmappedArray: CUDA's arrays (CUarray, CUmipmappedArray). They lie row by row in the
// device's memory, and count against it like any allocation. The layout is private, because
// programs only copy to and from arrays and fetch from them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "emulated/objects/handle_table.h"
#include "emulated/runtime/texture.h"

namespace gpurun::emulated {

class Context;
struct BoxSide;
struct CopyBox;

// A component's format, and the number of components of an element.
struct ElementFormat {
  TexelFormat format = TexelFormat::kF32;
  std::uint32_t channels = 1;
  std::uint32_t bytes() const { return component_bytes(format) * channels; }
};

// INVALID_VALUE for an unknown format, and for a number of channels other than 1, 2 and 4.
// NOT_SUPPORTED for the formats of video, block compression and fixed normalization.
CUresult element_format(CUarray_format format, unsigned channels, ElementFormat* out);

// Any thread. The memory belongs to the context. It ends with cuArrayDestroy or with the context.
class Array final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kArray;

  Array(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, const ElementFormat& element,
        const TexelImage& image, std::uint64_t memory)
      : Object(kKind), descriptor_(descriptor), element_(element), image_(image), memory_(memory) {}

  const CUDA_ARRAY3D_DESCRIPTOR& descriptor() const { return descriptor_; }
  const ElementFormat& element() const { return element_; }
  const TexelImage& image() const { return image_; }
  // The allocation that holds it. A level of a mipmapped array lies in the mipmapped array's.
  std::uint64_t memory() const { return memory_; }
  bool is_level() const { return is_level_; }
  void set_level() { is_level_ = true; }

  // The address of a box that begins at (x bytes, y, z). INVALID_VALUE: the box is not all inside,
  // or x does not begin an element.
  CUresult place(std::uint64_t x_bytes, std::uint64_t y, std::uint64_t z, const CopyBox& extent,
                 BoxSide* out) const;

 private:
  const CUDA_ARRAY3D_DESCRIPTOR descriptor_;
  const ElementFormat element_;
  const TexelImage image_;
  const std::uint64_t memory_;
  bool is_level_ = false;
};

using ArrayPtr = std::shared_ptr<Array>;

// Any thread. Its levels are Arrays with handles of their own, which are valid as long as it is.
class MipmappedArray final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kMipmappedArray;

  MipmappedArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, std::vector<ArrayPtr> levels)
      : Object(kKind), descriptor_(descriptor), levels_(std::move(levels)) {}
  ~MipmappedArray() override;

  const CUDA_ARRAY3D_DESCRIPTOR& descriptor() const { return descriptor_; }
  const std::vector<ArrayPtr>& levels() const { return levels_; }
  std::uint64_t memory() const { return levels_.front()->memory(); }

 private:
  const CUDA_ARRAY3D_DESCRIPTOR descriptor_;
  const std::vector<ArrayPtr> levels_;
};

// INVALID_VALUE, NOT_SUPPORTED (formats and flags unknown to this device), OUT_OF_MEMORY. The
// context owns the handle of the result.
CUresult make_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, ArrayPtr* out);
CUresult make_mipmapped_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                              unsigned levels, std::shared_ptr<MipmappedArray>* out);

}  // namespace gpurun::emulated
