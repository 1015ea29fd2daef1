// Copy description: offsets and pitches become addresses, and each side gets its place.
#include "client/interpose/driver/copy_description.h"

#include "client/interpose/driver/copy_memory.h"

namespace gpurun::client::interpose {
namespace {

// Returns 0 and the side, or the call's result.
int side_of(const EntryContext& here, const DescribedSide& in, const Copy& copy, CopySide* out) {
  if (in.type == CU_MEMORYTYPE_ARRAY) {
    const int result = side_in_array(here, in.array, in.x, out);
    out->y = in.y;
    out->z = in.z;
    return result;
  }
  std::uint64_t pitch = in.pitch, height = in.height;
  if (pitch == 0 && __builtin_add_overflow(in.x, copy.width, &pitch)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (height == 0 && __builtin_add_overflow(in.y, copy.lines, &height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (in.x > pitch || copy.width > pitch - in.x) return CUDA_ERROR_INVALID_VALUE;
  if (copy.slices > 1 && (in.y > height || copy.lines > height - in.y)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out->line_pitch = pitch;
  if (__builtin_mul_overflow(pitch, height, &out->slice_pitch)) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t offset = 0, lines = 0;
  if (__builtin_mul_overflow(in.z, out->slice_pitch, &offset) ||
      __builtin_mul_overflow(in.y, pitch, &lines) ||
      __builtin_add_overflow(offset, lines, &offset) ||
      __builtin_add_overflow(offset, in.x, &offset)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (in.type) {
    case CU_MEMORYTYPE_DEVICE:
      out->place = place_on_device(in.device + offset);
      out->address = in.device + offset;
      return in.device == 0 ? int{CUDA_ERROR_INVALID_VALUE} : 0;
    case CU_MEMORYTYPE_HOST:
      out->address = in.host + offset;
      out->place = place_of(out->address, copy.width);  // It may be device memory all the same.
      return in.host == 0 ? int{CUDA_ERROR_INVALID_VALUE} : 0;
    case CU_MEMORYTYPE_UNIFIED:
      out->address = in.device + offset;
      out->place = place_of(out->address, copy.width);
      return in.device == 0 ? int{CUDA_ERROR_INVALID_VALUE} : 0;
    case CU_MEMORYTYPE_ARRAY:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

DescribedCopy described(const CUDA_MEMCPY2D& in) {
  DescribedCopy out;
  out.from = {
      in.srcXInBytes, in.srcY,     0, in.srcMemoryType, address_of(in.srcHost), in.srcDevice,
      in.srcArray,    in.srcPitch, 0};
  out.to = {in.dstXInBytes, in.dstY,     0, in.dstMemoryType, address_of(in.dstHost), in.dstDevice,
            in.dstArray,    in.dstPitch, 0};
  out.copy.width = in.WidthInBytes;
  out.copy.lines = in.Height;
  return out;
}

DescribedCopy described(const CUDA_MEMCPY3D& in) {
  DescribedCopy out;
  out.sound =
      in.srcLOD == 0 && in.dstLOD == 0 && in.reserved0 == nullptr && in.reserved1 == nullptr;
  out.from = {in.srcXInBytes, in.srcY,     in.srcZ,     in.srcMemoryType, address_of(in.srcHost),
              in.srcDevice,   in.srcArray, in.srcPitch, in.srcHeight};
  out.to = {in.dstXInBytes, in.dstY,     in.dstZ,     in.dstMemoryType, address_of(in.dstHost),
            in.dstDevice,   in.dstArray, in.dstPitch, in.dstHeight};
  out.copy.width = in.WidthInBytes;
  out.copy.lines = in.Height;
  out.copy.slices = in.Depth;
  return out;
}

int resolve_sides(const EntryContext& here, const DescribedCopy& in, Copy* copy) {
  const int result = side_of(here, in.from, *copy, &copy->source);
  return result != 0 ? result : side_of(here, in.to, *copy, &copy->destination);
}

int describe_copy(const EntryContext& here, const CUDA_MEMCPY3D& given, Copy* copy) {
  const DescribedCopy in = described(given);
  if (!in.sound) return CUDA_ERROR_INVALID_VALUE;
  *copy = in.copy;
  if (copy->width == 0 || copy->lines == 0 || copy->slices == 0) return 0;
  if (const int result = resolve_sides(here, in, copy); result != 0) return result;
  copy->merge();
  return 0;
}

}  // namespace gpurun::client::interpose
