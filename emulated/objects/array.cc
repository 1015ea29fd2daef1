// Extents, formats and memory of arrays.
#include "emulated/objects/array.h"

#include <algorithm>

#include "driver_abi/semantics/arrays.h"
#include "emulated/objects/context.h"
#include "emulated/objects/copy.h"
#include "emulated/objects/device.h"
#include "emulated/objects/memory_registry.h"
#include "emulated/objects/ownership.h"

namespace gpurun::emulated {
namespace {

constexpr std::uint64_t kRowAlignment = 32;
constexpr unsigned kFlagsKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                 CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
constexpr unsigned kFlagsOfCuda = kFlagsKnown | CUDA_ARRAY3D_DEPTH_TEXTURE |
                                  CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_SPARSE |
                                  CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;

// Largest width, height and depth or layers. 0: the extent must be 0.
struct Limits {
  CUdevice_attribute width;
  CUdevice_attribute height;
  CUdevice_attribute depth;
};
constexpr auto kNone = static_cast<CUdevice_attribute>(0);

#define GPURUN_LIMIT(name) CU_DEVICE_ATTRIBUTE_MAXIMUM_##name

// The table of cuArray3DCreate and cuMipmappedArrayCreate (Driver API, "Memory Management").
struct ArrayType {
  bool layered, cube, has_height, has_depth;
  Limits texture, surface;
};
constexpr ArrayType kTypes[] = {
    {false,
     false,
     false,
     false,
     {GPURUN_LIMIT(TEXTURE1D_WIDTH), kNone, kNone},
     {GPURUN_LIMIT(SURFACE1D_WIDTH), kNone, kNone}},
    {false,
     false,
     true,
     false,
     {GPURUN_LIMIT(TEXTURE2D_WIDTH), GPURUN_LIMIT(TEXTURE2D_HEIGHT), kNone},
     {GPURUN_LIMIT(SURFACE2D_WIDTH), GPURUN_LIMIT(SURFACE2D_HEIGHT), kNone}},
    {false,
     false,
     true,
     true,
     {GPURUN_LIMIT(TEXTURE3D_WIDTH), GPURUN_LIMIT(TEXTURE3D_HEIGHT), GPURUN_LIMIT(TEXTURE3D_DEPTH)},
     {GPURUN_LIMIT(SURFACE3D_WIDTH), GPURUN_LIMIT(SURFACE3D_HEIGHT),
      GPURUN_LIMIT(SURFACE3D_DEPTH)}},
    {true,
     false,
     false,
     true,
     {GPURUN_LIMIT(TEXTURE1D_LAYERED_WIDTH), kNone, GPURUN_LIMIT(TEXTURE1D_LAYERED_LAYERS)},
     {GPURUN_LIMIT(SURFACE1D_LAYERED_WIDTH), kNone, GPURUN_LIMIT(SURFACE1D_LAYERED_LAYERS)}},
    {true,
     false,
     true,
     true,
     {GPURUN_LIMIT(TEXTURE2D_LAYERED_WIDTH), GPURUN_LIMIT(TEXTURE2D_LAYERED_HEIGHT),
      GPURUN_LIMIT(TEXTURE2D_LAYERED_LAYERS)},
     {GPURUN_LIMIT(SURFACE2D_LAYERED_WIDTH), GPURUN_LIMIT(SURFACE2D_LAYERED_HEIGHT),
      GPURUN_LIMIT(SURFACE2D_LAYERED_LAYERS)}},
    {false,
     true,
     true,
     true,
     {GPURUN_LIMIT(TEXTURECUBEMAP_WIDTH), GPURUN_LIMIT(TEXTURECUBEMAP_WIDTH), kNone},
     {GPURUN_LIMIT(SURFACECUBEMAP_WIDTH), GPURUN_LIMIT(SURFACECUBEMAP_WIDTH), kNone}},
    {true,
     true,
     true,
     true,
     {GPURUN_LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH), GPURUN_LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH),
      GPURUN_LIMIT(TEXTURECUBEMAP_LAYERED_LAYERS)},
     {GPURUN_LIMIT(SURFACECUBEMAP_LAYERED_WIDTH), GPURUN_LIMIT(SURFACECUBEMAP_LAYERED_WIDTH),
      GPURUN_LIMIT(SURFACECUBEMAP_LAYERED_LAYERS)}},
};
constexpr Limits kGather = {GPURUN_LIMIT(TEXTURE2D_GATHER_WIDTH),
                            GPURUN_LIMIT(TEXTURE2D_GATHER_HEIGHT), kNone};
constexpr Limits kLongVolume = {GPURUN_LIMIT(TEXTURE3D_WIDTH_ALTERNATE),
                                GPURUN_LIMIT(TEXTURE3D_HEIGHT_ALTERNATE),
                                GPURUN_LIMIT(TEXTURE3D_DEPTH_ALTERNATE)};
constexpr Limits kMipmapped1d = {GPURUN_LIMIT(TEXTURE1D_MIPMAPPED_WIDTH), kNone, kNone};
constexpr Limits kMipmapped2d = {GPURUN_LIMIT(TEXTURE2D_MIPMAPPED_WIDTH),
                                 GPURUN_LIMIT(TEXTURE2D_MIPMAPPED_HEIGHT), kNone};
#undef GPURUN_LIMIT

bool within(const Device& device, const CUDA_ARRAY3D_DESCRIPTOR& what, const Limits& limits) {
  const auto fits = [&](std::size_t extent, CUdevice_attribute attribute) {
    int most = 0;
    if (attribute == kNone) return true;
    return device.attribute(attribute, 0, &most) && extent <= static_cast<std::size_t>(most);
  };
  return fits(what.Width, limits.width) && fits(what.Height, limits.height) &&
         fits(what.Depth, limits.depth);
}

bool has(const CUDA_ARRAY3D_DESCRIPTOR& what, unsigned flag) { return (what.Flags & flag) != 0; }

CUresult check_extents(const Device& device, const CUDA_ARRAY3D_DESCRIPTOR& what, bool mipmapped) {
  if (what.Width == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool cube = has(what, CUDA_ARRAY3D_CUBEMAP);
  const bool layered = has(what, CUDA_ARRAY3D_LAYERED);
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const ArrayType& one) {
    return one.layered == layered && one.cube == cube && one.has_height == (what.Height != 0) &&
           one.has_depth == (what.Depth != 0);
  });
  if (type == std::end(kTypes)) return CUDA_ERROR_INVALID_VALUE;
  if (cube && (what.Width != what.Height || what.Depth % 6 != 0)) return CUDA_ERROR_INVALID_VALUE;
  if (cube && !layered && what.Depth != 6) return CUDA_ERROR_INVALID_VALUE;
  const bool plain = !cube && !layered && what.Depth == 0;
  Limits limits = type->texture;
  if (mipmapped && plain) limits = what.Height == 0 ? kMipmapped1d : kMipmapped2d;
  const bool volume = !cube && !layered && what.Depth != 0;
  if (!within(device, what, limits) && !(volume && within(device, what, kLongVolume))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (has(what, CUDA_ARRAY3D_SURFACE_LDST) && !within(device, what, type->surface)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (has(what, CUDA_ARRAY3D_TEXTURE_GATHER) &&
      (!plain || what.Height == 0 || !within(device, what, kGather))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult check(const Device& device, const CUDA_ARRAY3D_DESCRIPTOR& what, bool mipmapped,
               ElementFormat* element) {
  if ((what.Flags & ~kFlagsOfCuda) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = element_format(what.Format, what.NumChannels, element)) {
    return result;
  }
  if ((what.Flags & ~kFlagsKnown) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return check_extents(device, what, mipmapped);
}

// The image of one level, without an address.
TexelImage lay_out(const CUDA_ARRAY3D_DESCRIPTOR& what, const ElementFormat& element) {
  TexelImage image;
  const auto extent = [](std::size_t count) {
    return static_cast<std::uint32_t>(std::max<std::size_t>(1, count));
  };
  image.width = extent(what.Width);
  image.height = extent(what.Height);
  image.depth = extent(what.Depth);
  image.row_pitch = (std::uint64_t{image.width} * element.bytes() + kRowAlignment - 1) /
                    kRowAlignment * kRowAlignment;
  image.slice_pitch = image.row_pitch * image.height;
  return image;
}

std::uint64_t bytes_of(const TexelImage& image) { return image.slice_pitch * image.depth; }

// 0: the device's memory is used up.
std::uint64_t take_memory(const Context& context, std::uint64_t bytes) {
  const std::uint64_t address = context.device().arena().allocate(bytes);
  if (address == 0) return 0;
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.kind = MemoryKind::kArray;
  range.device = context.device().ordinal();
  range.context_handle = context.handle();
  memory_registry().add(range);
  return address;
}

}  // namespace

CUresult element_format(CUarray_format format, unsigned channels, ElementFormat* out) {
  struct Known {
    CUarray_format name;
    TexelFormat format;
  };
  static constexpr Known kKnown[] = {
      {CU_AD_FORMAT_UNSIGNED_INT8, TexelFormat::kU8},
      {CU_AD_FORMAT_UNSIGNED_INT16, TexelFormat::kU16},
      {CU_AD_FORMAT_UNSIGNED_INT32, TexelFormat::kU32},
      {CU_AD_FORMAT_SIGNED_INT8, TexelFormat::kS8},
      {CU_AD_FORMAT_SIGNED_INT16, TexelFormat::kS16},
      {CU_AD_FORMAT_SIGNED_INT32, TexelFormat::kS32},
      {CU_AD_FORMAT_HALF, TexelFormat::kF16},
      {CU_AD_FORMAT_FLOAT, TexelFormat::kF32},
  };
  const auto found = std::find_if(std::begin(kKnown), std::end(kKnown),
                                  [&](const Known& known) { return known.name == format; });
  if (found == std::end(kKnown)) {
    const int number = static_cast<int>(format);
    const bool known =
        (number >= CU_AD_FORMAT_UNORM_INT_101010_2 && number <= CU_AD_FORMAT_UINT16_PLANAR_444) ||
        (number >= CU_AD_FORMAT_BC1_UNORM && number <= CU_AD_FORMAT_SNORM_INT16X4);
    return known ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
  *out = {found->format, channels};
  return CUDA_SUCCESS;
}

CUresult Array::place(std::uint64_t x_bytes, std::uint64_t y, std::uint64_t z,
                      const CopyBox& extent, BoxSide* out) const {
  const driver_abi::ArrayExtent all{element_.bytes(),
                                    std::uint64_t{image_.width} * element_.bytes(), image_.height,
                                    image_.depth};
  const driver_abi::ArrayPart part{x_bytes, y, z, extent.width_bytes, extent.height, extent.depth};
  if (!driver_abi::is_part_of(all, part)) return CUDA_ERROR_INVALID_VALUE;
  *out = {image_.address + z * image_.slice_pitch + y * image_.row_pitch + x_bytes,
          image_.row_pitch, image_.slice_pitch};
  return CUDA_SUCCESS;
}

MipmappedArray::~MipmappedArray() {
  for (const ArrayPtr& level : levels_) handles().drop(level->handle());
}

CUresult make_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, ArrayPtr* out) {
  ElementFormat element;
  if (const CUresult result = check(context.device(), descriptor, false, &element)) return result;
  TexelImage image = lay_out(descriptor, element);
  image.address = take_memory(context, bytes_of(image));
  if (image.address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = handles().add(std::make_shared<Array>(descriptor, element, image, image.address));
  context.own(**out);
  return CUDA_SUCCESS;
}

CUresult make_mipmapped_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                              unsigned levels, std::shared_ptr<MipmappedArray>* out) {
  ElementFormat element;
  if (const CUresult result = check(context.device(), descriptor, true, &element)) return result;
  levels = std::min(driver_abi::mipmap_levels(descriptor, levels), kTextureLevelsMax);
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < levels; ++i)
    bytes += bytes_of(lay_out(driver_abi::level_of(descriptor, i), element));
  const std::uint64_t memory = take_memory(context, bytes);
  if (memory == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<ArrayPtr> made;
  std::uint64_t address = memory;
  for (unsigned i = 0; i < levels; ++i) {
    const CUDA_ARRAY3D_DESCRIPTOR level = driver_abi::level_of(descriptor, i);
    TexelImage image = lay_out(level, element);
    image.address = address;
    address += bytes_of(image);
    auto array = std::make_shared<Array>(level, element, image, memory);
    array->set_level();
    made.push_back(handles().add(std::move(array)));
  }
  *out = handles().add(std::make_shared<MipmappedArray>(descriptor, std::move(made)));
  context.own(**out);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated
