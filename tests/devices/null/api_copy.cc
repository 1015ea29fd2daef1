// Copies of rectangles and boxes between plain memory; arrays have no contents on this device.
#include <cstring>

#include "tests/devices/null/api.h"

namespace gpurun::null_device::api {
namespace {

struct Side {
  unsigned char* start;
  std::size_t pitch;
  std::size_t height;  // Rows of one slice.
};

// False for arrays.
bool side_of(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t pitch,
             std::size_t height, std::size_t offset, Side* out) {
  if (type == CU_MEMORYTYPE_ARRAY) return false;
  const auto address =
      type == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uint64_t>(host) : std::uint64_t{device};
  *out = {reinterpret_cast<unsigned char*>(address) + offset, pitch, height};
  return true;
}

CUresult copy_box(const CUDA_MEMCPY3D& box) {
  Side from, to;
  const bool plain =
      side_of(box.srcMemoryType, box.srcHost, box.srcDevice, box.srcPitch, box.srcHeight,
              box.srcXInBytes + box.srcPitch * (box.srcY + box.srcHeight * box.srcZ), &from) &&
      side_of(box.dstMemoryType, box.dstHost, box.dstDevice, box.dstPitch, box.dstHeight,
              box.dstXInBytes + box.dstPitch * (box.dstY + box.dstHeight * box.dstZ), &to);
  if (!plain) return CUDA_ERROR_NOT_SUPPORTED;
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
