// Fills of device memory with 8, 16 or 32-bit values, in one or two dimensions.
#include "driver_abi/semantics/planes.h"
#include "emulated/api/copies.h"
#include "emulated/api/entry.h"
#include "emulated/objects/copy.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {

CUresult check_fill(const Fill& what) {
  const auto bytes = driver_abi::span_of(
      {what.address, what.row_pitch, what.element_bytes, what.width, what.height});
  return bytes && memory_registry().covers(what.address, *bytes) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_VALUE;
}

namespace {

// A fill of device memory never blocks the host. A fill of pinned or managed memory does, in its
// synchronous form (manual, "API synchronization behavior").
CUresult submit_fill(CUstream handle, const Fill& what, bool synchronous) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (what.width == 0 || what.height == 0) return CUDA_SUCCESS;
  GPURUN_TRY(check_fill(what));
  const auto range = memory_registry().find(what.address);
  auto operation = std::make_shared<FillOperation>(what);
  if (synchronous && range && range->is_seen_by_host()) {
    return submit_and_wait(context, stream, std::move(operation));
  }
  return submit(context, stream, std::move(operation));
}

Fill line(CUdeviceptr address, std::uint32_t element_bytes, std::uint32_t value, size_t count) {
  Fill what;
  what.address = address;
  what.width = count;
  what.element_bytes = element_bytes;
  what.value = value;
  return what;
}

Fill plane(CUdeviceptr address, size_t pitch, std::uint32_t element_bytes, std::uint32_t value,
           size_t width, size_t height) {
  Fill what = line(address, element_bytes, value, width);
  what.row_pitch = pitch;
  what.height = height;
  return what;
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t count) {
  return submit_fill(nullptr, line(address, 1, value, count), true);
}
CUresult cuMemsetD16_v2(CUdeviceptr address, unsigned short value, size_t count) {
  return submit_fill(nullptr, line(address, 2, value, count), true);
}
CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned int value, size_t count) {
  return submit_fill(nullptr, line(address, 4, value, count), true);
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
  return submit_fill(stream, line(address, 1, value, count), false);
}
CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count,
                          CUstream stream) {
  return submit_fill(stream, line(address, 2, value, count), false);
}
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count, CUstream stream) {
  return submit_fill(stream, line(address, 4, value, count), false);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr address, size_t pitch, unsigned char value, size_t width,
                         size_t height) {
  return submit_fill(nullptr, plane(address, pitch, 1, value, width, height), true);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr address, size_t pitch, unsigned short value, size_t width,
                          size_t height) {
  return submit_fill(nullptr, plane(address, pitch, 2, value, width, height), true);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr address, size_t pitch, unsigned int value, size_t width,
                          size_t height) {
  return submit_fill(nullptr, plane(address, pitch, 4, value, width, height), true);
}
CUresult cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  return submit_fill(stream, plane(address, pitch, 1, value, width, height), false);
}
CUresult cuMemsetD2D16Async(CUdeviceptr address, size_t pitch, unsigned short value, size_t width,
                            size_t height, CUstream stream) {
  return submit_fill(stream, plane(address, pitch, 2, value, width, height), false);
}
CUresult cuMemsetD2D32Async(CUdeviceptr address, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream) {
  return submit_fill(stream, plane(address, pitch, 4, value, width, height), false);
}

}  // namespace gpurun::emulated::api
