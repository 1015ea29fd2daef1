// Copy structures: copies that a structure describes, of two and three dimensions.
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/copy.h"

namespace gpurun::client::interpose {
namespace {

// One side of the structure.
struct Described {
  std::uint64_t x, y, z;
  CUmemorytype type;
  std::uint64_t host;
  CUdeviceptr device;
  CUarray array;
  std::uint64_t pitch, height;  // 0: as large as the copied box.
};

// Returns 0 and the side, or the call's result.
int side_of(const Here& here, const Described& in, const Copy& copy, CopySide* out) {
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
      out->place = Place::kDevice;
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

int sides_of(const Here& here, const Described& from, const Described& to, Copy* copy) {
  const int result = side_of(here, from, *copy, &copy->source);
  return result != 0 ? result : side_of(here, to, *copy, &copy->destination);
}

CUresult run(std::uint16_t code, const Described& from, const Described& to, Copy copy,
             CUstream given, Waiting waiting) {
  Here here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Handle stream = 0;
  if (const int result = resolve_stream(here, given, &stream); result != 0) return cuda(result);
  for (const CUmemorytype type : {from.type, to.type}) {
    if (type < CU_MEMORYTYPE_HOST || type > CU_MEMORYTYPE_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
  }
  if (copy.width == 0 || copy.lines == 0 || copy.slices == 0) {
    return cuda(here.session().health(here.context->handle));
  }
  if (const int result = sides_of(here, from, to, &copy); result != 0) return cuda(result);
  const bool on_device = copy.source.on_device() && copy.destination.on_device();
  return cuda(run_copy(here, code, stream, copy, on_device ? Waiting::kAsynchronous : waiting));
}

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

CUresult copy_2d(std::uint16_t code, const CUDA_MEMCPY2D* given, CUstream stream, Waiting waiting) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY2D in = *given;
  Copy copy;
  copy.width = in.WidthInBytes;
  copy.lines = in.Height;
  return run(code,
             {in.srcXInBytes, in.srcY, 0, in.srcMemoryType, address_of(in.srcHost), in.srcDevice,
              in.srcArray, in.srcPitch, 0},
             {in.dstXInBytes, in.dstY, 0, in.dstMemoryType, address_of(in.dstHost), in.dstDevice,
              in.dstArray, in.dstPitch, 0},
             copy, stream, waiting);
}

// A structure of three dimensions, before its sides are resolved.
struct Structure {
  bool sound;
  Described from, to;
  Copy copy;
};

Structure structure_of(const CUDA_MEMCPY3D& in) {
  Structure out;
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

CUresult copy_3d(std::uint16_t code, const CUDA_MEMCPY3D* given, CUstream stream, Waiting waiting) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Structure in = structure_of(*given);
  if (!in.sound) return CUDA_ERROR_INVALID_VALUE;
  return run(code, in.from, in.to, in.copy, stream, waiting);
}

}  // namespace

int describe_copy(const Here& here, const CUDA_MEMCPY3D& given, Copy* copy) {
  const Structure in = structure_of(given);
  if (!in.sound) return CUDA_ERROR_INVALID_VALUE;
  *copy = in.copy;
  if (copy->width == 0 || copy->lines == 0 || copy->slices == 0) return 0;
  if (const int result = sides_of(here, in.from, in.to, copy); result != 0) return result;
  copy->merge();
  return 0;
}

}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
  return copy_2d(opcode::cuMemcpy2D_v2, copy, nullptr, Waiting::kSynchronous);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
  return copy_2d(opcode::cuMemcpy2DUnaligned_v2, copy, nullptr, Waiting::kSynchronous);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy_2d(opcode::cuMemcpy2DAsync_v2, copy, stream, Waiting::kAsynchronous);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
  return copy_3d(opcode::cuMemcpy3D_v2, copy, nullptr, Waiting::kSynchronous);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy_3d(opcode::cuMemcpy3DAsync_v2, copy, stream, Waiting::kAsynchronous);
}

}  // namespace gpurun::client::interpose::custom
