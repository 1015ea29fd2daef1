// Copies of rectangles and boxes between plain memory and arrays.
#include <cstring>

#include "tests/drivers/null/api.h"
#include "tests/drivers/null/arrays.h"

namespace gpurun::null_device::api {
namespace {

struct Side {
  unsigned char* start;
  std::size_t pitch;
  std::size_t height;  // Rows of one slice.
};

// The start of the box, in the fields that a copy structure has for either side.
struct Place {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  std::size_t x, y, z, pitch, height;
};

// INVALID_HANDLE: not an array. INVALID_VALUE: the box exceeds it.
CUresult side_of(const Place& place, const CUDA_MEMCPY3D& box, Side* out) {
  std::size_t pitch = place.pitch, height = place.height;
  unsigned char* start = nullptr;
  if (place.type == CU_MEMORYTYPE_ARRAY) {
    const auto memory = array_memory(place.array);
    if (!memory.has_value()) return CUDA_ERROR_INVALID_HANDLE;
    const auto inside = [](std::size_t at, std::size_t count, std::size_t size) {
      return at <= size && count <= size - at;
    };
    if (!inside(place.x, box.WidthInBytes, memory->pitch) ||
        !inside(place.y, box.Height, memory->height) ||
        !inside(place.z, box.Depth, memory->depth)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    start = memory->start;
    pitch = memory->pitch;
    height = memory->height;
  } else {
    const auto address = place.type == CU_MEMORYTYPE_HOST
                             ? reinterpret_cast<std::uint64_t>(place.host)
                             : std::uint64_t{place.device};
    start = reinterpret_cast<unsigned char*>(address);
  }
  *out = {start + place.x + pitch * (place.y + height * place.z), pitch, height};
  return CUDA_SUCCESS;
}

CUresult copy_box(const CUDA_MEMCPY3D& box) {
  Side from, to;
  const Place source = {box.srcMemoryType, box.srcHost,     box.srcDevice,
                        box.srcArray,      box.srcXInBytes, box.srcY,
                        box.srcZ,          box.srcPitch,    box.srcHeight};
  const Place target = {box.dstMemoryType, box.dstHost,     box.dstDevice,
                        box.dstArray,      box.dstXInBytes, box.dstY,
                        box.dstZ,          box.dstPitch,    box.dstHeight};
  CUresult result = side_of(source, box, &from);
  if (result == CUDA_SUCCESS) result = side_of(target, box, &to);
  if (result != CUDA_SUCCESS) return result;
  for (std::size_t z = 0; z < box.Depth; ++z) {
    for (std::size_t y = 0; y < box.Height; ++y) {
      std::memmove(to.start + to.pitch * (y + to.height * z),
                   from.start + from.pitch * (y + from.height * z), box.WidthInBytes);
    }
  }
  return CUDA_SUCCESS;
}

CUresult copy_rectangle(const CUDA_MEMCPY2D* copy) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D box{};
  box.srcXInBytes = copy->srcXInBytes;
  box.srcY = copy->srcY;
  box.srcMemoryType = copy->srcMemoryType;
  box.srcHost = copy->srcHost;
  box.srcDevice = copy->srcDevice;
  box.srcPitch = copy->srcPitch;
  box.srcArray = copy->srcArray;
  box.dstArray = copy->dstArray;
  box.dstXInBytes = copy->dstXInBytes;
  box.dstY = copy->dstY;
  box.dstMemoryType = copy->dstMemoryType;
  box.dstHost = copy->dstHost;
  box.dstDevice = copy->dstDevice;
  box.dstPitch = copy->dstPitch;
  box.WidthInBytes = copy->WidthInBytes;
  box.Height = copy->Height;
  box.Depth = 1;
  return copy_box(box);
}

}  // namespace

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return copy_rectangle(pCopy); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) { return copy_rectangle(pCopy); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream) { return copy_rectangle(pCopy); }

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_box(*pCopy);
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream) {
  return api::cuMemcpy3D_v2(pCopy);
}

}  // namespace gpurun::null_device::api
