// Texture and surface objects: conversion of the program's descriptions to what kernels read.
#include "emulated/objects/texture_object.h"

#include <algorithm>

#include "emulated/objects/array.h"
#include "emulated/objects/device.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {
namespace {

constexpr unsigned kFlagsKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                                 CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                                 CU_TRSF_SEAMLESS_CUBEMAP;

// All devices have the same limits.
std::uint64_t limit(CUdevice_attribute attribute) {
  int value = 0;
  devices().front()->attribute(attribute, 0, &value);
  return static_cast<std::uint64_t>(value);
}

void set_element(const ElementFormat& element, Texture* out) {
  out->format = element.format;
  out->channels = static_cast<std::uint8_t>(element.channels);
}

CUresult describe_linear(const CUDA_RESOURCE_DESC& resource, Texture* out) {
  const auto& linear = resource.res.linear;
  ElementFormat element;
  if (const CUresult result = element_format(linear.format, linear.numChannels, &element)) {
    return result;
  }
  const std::uint64_t count = linear.sizeInBytes / element.bytes();
  if (linear.devPtr == 0 || linear.devPtr % limit(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) != 0 ||
      count == 0 || count > limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH) ||
      !memory_registry().covers(linear.devPtr, count * element.bytes())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  set_element(element, out);
  out->is_linear = true;
  out->levels[0].address = linear.devPtr;
  out->levels[0].width = static_cast<std::uint32_t>(count);
  return CUDA_SUCCESS;
}

CUresult describe_pitched(const CUDA_RESOURCE_DESC& resource, Texture* out) {
  const auto& plane = resource.res.pitch2D;
  ElementFormat element;
  if (const CUresult result = element_format(plane.format, plane.numChannels, &element)) {
    return result;
  }
  if (plane.devPtr == 0 || plane.devPtr % limit(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) != 0 ||
      plane.width == 0 || plane.height == 0 ||
      plane.width > limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) ||
      plane.height > limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) ||
      plane.pitchInBytes > limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH) ||
      plane.pitchInBytes % limit(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t row = plane.width * element.bytes();
  if (plane.pitchInBytes < row ||
      !memory_registry().covers(plane.devPtr, plane.pitchInBytes * (plane.height - 1) + row)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  set_element(element, out);
  TexelImage& image = out->levels[0];
  image.address = plane.devPtr;
  image.width = static_cast<std::uint32_t>(plane.width);
  image.height = static_cast<std::uint32_t>(plane.height);
  image.row_pitch = plane.pitchInBytes;
  return CUDA_SUCCESS;
}

// View formats are in three groups of three lengths, with 1, 2 and 4 channels each.
CUresult view_format(CUresourceViewFormat view, ElementFormat* element) {
  static constexpr TexelFormat kFormats[] = {
      TexelFormat::kU8,  TexelFormat::kS8,  TexelFormat::kU16, TexelFormat::kS16,
      TexelFormat::kU32, TexelFormat::kS32, TexelFormat::kF16, TexelFormat::kF32};
  const int number = static_cast<int>(view);
  if (number == CU_RES_VIEW_FORMAT_NONE) return CUDA_SUCCESS;
  if (number < 0 || number > CU_RES_VIEW_FORMAT_UNSIGNED_BC7) return CUDA_ERROR_INVALID_VALUE;
  if (number >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1) return CUDA_ERROR_NOT_SUPPORTED;
  const int index = number - CU_RES_VIEW_FORMAT_UINT_1X8;
  const ElementFormat other = {kFormats[index / 3], 1u << index % 3};
  if (other.bytes() != element->bytes()) return CUDA_ERROR_INVALID_VALUE;
  *element = other;
  return CUDA_SUCCESS;
}

// The part of an array or of a mipmapped array that the view shows.
CUresult apply_view(const CUDA_RESOURCE_VIEW_DESC& view, const CUDA_ARRAY3D_DESCRIPTOR& whole,
                    ElementFormat element, Texture* out) {
  if (const CUresult result = view_format(view.format, &element)) return result;
  if (view.width != whole.Width || view.height != whole.Height || view.depth != whole.Depth) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool layered = (whole.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if (view.firstMipmapLevel > view.lastMipmapLevel || view.lastMipmapLevel >= out->level_count ||
      view.firstLayer > view.lastLayer || (!layered && view.lastLayer != 0) ||
      (layered && view.lastLayer >= whole.Depth)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  set_element(element, out);
  out->level_count = view.lastMipmapLevel - view.firstMipmapLevel + 1;
  std::copy_n(out->levels.begin() + view.firstMipmapLevel, out->level_count, out->levels.begin());
  for (std::uint32_t i = 0; layered && i < out->level_count; ++i) {
    TexelImage& image = out->levels[i];
    image.address += view.firstLayer * image.slice_pitch;
    image.depth = view.lastLayer - view.firstLayer + 1;
  }
  return CUDA_SUCCESS;
}

CUresult describe_levels(const CUDA_RESOURCE_DESC& resource, const CUDA_RESOURCE_VIEW_DESC* view,
                         bool* is_cube, Texture* out) {
  CUDA_ARRAY3D_DESCRIPTOR whole{};
  ElementFormat element;
  if (resource.resType == CU_RESOURCE_TYPE_ARRAY) {
    const auto array = handles().find<Array>(resource.res.array.hArray);
    if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    whole = array->descriptor();
    element = array->element();
    out->levels[0] = array->image();
  } else {
    const auto array = handles().find<MipmappedArray>(resource.res.mipmap.hMipmappedArray);
    if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    whole = array->descriptor();
    element = array->levels().front()->element();
    out->level_count = static_cast<std::uint32_t>(array->levels().size());
    for (std::uint32_t i = 0; i < out->level_count; ++i) {
      out->levels[i] = array->levels()[i]->image();
    }
  }
  *is_cube = (whole.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
  set_element(element, out);
  return view == nullptr ? CUDA_SUCCESS : apply_view(*view, whole, element, out);
}

TexelRead read_of(TexelFormat format, unsigned flags) {
  if (format == TexelFormat::kF16 || format == TexelFormat::kF32) return TexelRead::kFloat;
  if (format == TexelFormat::kU32 || format == TexelFormat::kS32 ||
      (flags & CU_TRSF_READ_AS_INTEGER) != 0) {
    return TexelRead::kInteger;
  }
  return format == TexelFormat::kU8 && (flags & CU_TRSF_SRGB) != 0 ? TexelRead::kSrgb
                                                                   : TexelRead::kNormalized;
}

CUresult apply_sampling(const CUDA_TEXTURE_DESC& sampling, bool is_cube, Texture* out) {
  const auto is_filter = [](CUfilter_mode mode) {
    return mode == CU_TR_FILTER_MODE_POINT || mode == CU_TR_FILTER_MODE_LINEAR;
  };
  if ((sampling.flags & ~kFlagsKnown) != 0 || !is_filter(sampling.filterMode) ||
      !is_filter(sampling.mipmapFilterMode)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out->read = read_of(out->format, sampling.flags);
  out->normalized = (sampling.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  out->filter_linear = sampling.filterMode == CU_TR_FILTER_MODE_LINEAR;
  out->mipmap_linear = sampling.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  const bool seamless = (sampling.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0;
  if (seamless && !is_cube) return CUDA_ERROR_INVALID_VALUE;
  if (seamless && out->filter_linear) return CUDA_ERROR_NOT_SUPPORTED;
  for (int i = 0; i < 3; ++i) {
    const CUaddress_mode mode = sampling.addressMode[i];
    if (mode < CU_TR_ADDRESS_MODE_WRAP || mode > CU_TR_ADDRESS_MODE_BORDER) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    out->address_mode[i] = static_cast<AddressMode>(mode);
    // Integer coordinates neither repeat nor mirror (Runtime API, cudaCreateTextureObject).
    const bool repeats = mode == CU_TR_ADDRESS_MODE_WRAP || mode == CU_TR_ADDRESS_MODE_MIRROR;
    if (seamless || (!out->normalized && !is_cube && repeats)) {
      out->address_mode[i] = AddressMode::kClamp;
    }
  }
  std::copy(std::begin(sampling.borderColor), std::end(sampling.borderColor), out->border);
  out->level_bias = sampling.mipmapLevelBias;
  out->level_min = sampling.minMipmapLevelClamp;
  out->level_max = sampling.maxMipmapLevelClamp;
  return CUDA_SUCCESS;
}

}  // namespace

TextureObject::TextureObject(std::uint64_t slot, const CUDA_RESOURCE_DESC& resource,
                             const CUDA_TEXTURE_DESC& sampling, const CUDA_RESOURCE_VIEW_DESC* view)
    : Object(kKind),
      slot_(slot),
      resource_(resource),
      sampling_(sampling),
      has_view_(view != nullptr) {
  if (view != nullptr) view_ = *view;
}

TextureObject::~TextureObject() {
  objects_by_slot().remove(slot_);
  texture_slots().remove(slot_);
}

SurfaceObject::SurfaceObject(std::uint64_t slot, const CUDA_RESOURCE_DESC& resource)
    : Object(kKind), slot_(slot), resource_(resource) {}

SurfaceObject::~SurfaceObject() {
  objects_by_slot().remove(slot_);
  surface_slots().remove(slot_);
}

void ObjectsBySlot::add(std::uint64_t slot, std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  handles_[slot] = handle;
}

void ObjectsBySlot::remove(std::uint64_t slot) {
  const std::lock_guard lock(mutex_);
  handles_.erase(slot);
}

std::uint64_t ObjectsBySlot::find(std::uint64_t slot) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(slot);
  return found == handles_.end() ? 0 : found->second;
}

ObjectsBySlot& objects_by_slot() {
  static auto* const objects = new ObjectsBySlot;
  return *objects;
}

CUresult describe_texture(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& sampling,
                          const CUDA_RESOURCE_VIEW_DESC* view, Texture* out) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  bool is_cube = false;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      result = describe_levels(resource, view, &is_cube, out);
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      // Driver API: "for CUDA mipmapped arrays, this flag has to be set".
      if ((sampling.flags & CU_TRSF_NORMALIZED_COORDINATES) == 0) return CUDA_ERROR_INVALID_VALUE;
      result = describe_levels(resource, view, &is_cube, out);
      break;
    case CU_RESOURCE_TYPE_LINEAR:
      if (view == nullptr) result = describe_linear(resource, out);
      break;
    case CU_RESOURCE_TYPE_PITCH2D:
      if (view == nullptr) result = describe_pitched(resource, out);
      break;
  }
  return result != CUDA_SUCCESS ? result : apply_sampling(sampling, is_cube, out);
}

CUresult describe_surface(const CUDA_RESOURCE_DESC& resource, Surface* out) {
  if (resource.flags != 0 || resource.resType != CU_RESOURCE_TYPE_ARRAY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto array = handles().find<Array>(resource.res.array.hArray);
  if (array == nullptr || (array->descriptor().Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out->element_bytes = array->element().bytes();
  out->image = array->image();
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated
