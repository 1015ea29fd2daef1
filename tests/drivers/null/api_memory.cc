// Memory of the null device: allocation, copies, fills, virtual memory, pointer attributes.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "tests/drivers/null/api.h"
#include "tests/drivers/null/entry.h"
#include "tests/drivers/null/memory.h"

namespace gpurun::null_device::api {
namespace {

using driver_abi::HandleKind;

void* at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUresult allocate_into(CUdeviceptr* dptr, std::size_t bytes) {
  if (dptr == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t base = allocate(bytes, MemoryKind::kDevice);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *dptr = base;
  return CUDA_SUCCESS;
}

CUresult copy(void* dst, const void* src, std::size_t bytes) {
  if (bytes != 0 && (dst == nullptr || src == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes != 0) std::memmove(dst, src, bytes);
  return CUDA_SUCCESS;
}

template <typename Value>
CUresult set(CUdeviceptr address, std::size_t pitch, Value value, std::size_t width,
             std::size_t height) {
  for (std::size_t y = 0; y < height; ++y) {
    auto* row = reinterpret_cast<unsigned char*>(address + y * pitch);
    for (std::size_t x = 0; x < width; ++x)
      std::memcpy(row + x * sizeof value, &value, sizeof value);
  }
  return CUDA_SUCCESS;
}

// cuMemCreate: a memory file, so that one allocation can be mapped at several addresses.
struct Allocations {
  struct File {
    int descriptor;
    std::size_t bytes;
  };
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, File> files;
};

Allocations& allocations() {
  alignas(Allocations) static unsigned char storage[sizeof(Allocations)];
  static auto* const all = new (storage) Allocations;
  return *all;
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) { return allocate_into(dptr, bytesize); }

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream) {
  return allocate_into(dptr, bytesize);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool, CUstream) {
  return allocate_into(dptr, bytesize);
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int) {
  return allocate_into(dptr, bytesize);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int) {
  if (pPitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t pitch = (WidthInBytes + 511) / 512 * 512;
  const CUresult result = allocate_into(dptr, pitch * Height);
  if (result == CUDA_SUCCESS) *pPitch = pitch;
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  if (dptr == 0 || release(dptr, MemoryKind::kDevice)) return CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream) { return api::cuMemFree_v2(dptr); }

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (free != nullptr) *free = kDeviceBytes - used_device_bytes();
  if (total != nullptr) *total = kDeviceBytes;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int) {
  if (pp == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t base = allocate(bytesize, MemoryKind::kHost);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *pp = at(base);
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return api::cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void* p) {
  return p == nullptr || release(reinterpret_cast<std::uint64_t>(p), MemoryKind::kHost)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int) {
  if (pdptr == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int) {
  if (p == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  remember({reinterpret_cast<std::uint64_t>(p), bytesize, MemoryKind::kRegistered});
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* p) {
  return release(reinterpret_cast<std::uint64_t>(p), MemoryKind::kRegistered)
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  const auto range = range_of(dptr);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = range->base;
  if (psize != nullptr) *psize = range->bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  const auto range = range_of(ptr);
  if (data == nullptr || !range) return CUDA_ERROR_INVALID_VALUE;
  const bool host = range->kind == MemoryKind::kHost || range->kind == MemoryKind::kRegistered;
  const unsigned type = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  const int device = 0;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      std::memcpy(data, &type, sizeof type);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      std::memcpy(data, &ptr, sizeof ptr);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      std::memcpy(data, &device, sizeof device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      std::memcpy(data, &range->base, sizeof range->base);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      std::memcpy(data, &range->bytes, sizeof range->bytes);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy(at(dst), at(src), ByteCount);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream) {
  return copy(at(dst), at(src), ByteCount);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return copy(at(dstDevice), srcHost, ByteCount);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream) {
  return copy(at(dstDevice), srcHost, ByteCount);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy(dstHost, at(srcDevice), ByteCount);
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream) {
  return copy(dstHost, at(srcDevice), ByteCount);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy(at(dstDevice), at(srcDevice), ByteCount);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream) {
  return copy(at(dstDevice), at(srcDevice), ByteCount);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return set(dstDevice, 0, uc, N, 1);
}
CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return set(dstDevice, 0, us, N, 1);
}
CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return set(dstDevice, 0, ui, N, 1);
}
CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream) {
  return set(dstDevice, 0, uc, N, 1);
}
CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream) {
  return set(dstDevice, 0, us, N, 1);
}
CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream) {
  return set(dstDevice, 0, ui, N, 1);
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags) {
  if (granularity == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *granularity = std::size_t{2} << 20;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t, CUdeviceptr addr,
                             unsigned long long) {
  if (ptr == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  // The address is a hint, for CUDA as for mmap. MAP_FIXED_NOREPLACE would be wrong:
  // ThreadSanitizer drops a hint for an address that it does not support but keeps that flag, and
  // page 0 would be mapped.
  void* place = mmap(at(addr), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *ptr = reinterpret_cast<CUdeviceptr>(place);
  remember({*ptr, size, MemoryKind::kReserved});
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t) {
  return release(ptr, MemoryKind::kReserved) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long) {
  if (handle == nullptr || prop == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  const int file = memfd_create("null-device", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (ftruncate(file, static_cast<off_t>(size)) != 0 || !charge(size)) {
    close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = mint(HandleKind::kAllocation);
  Allocations& all = allocations();
  const std::lock_guard lock(all.mutex);
  all.files[*handle] = {file, size};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Allocations& all = allocations();
  const std::lock_guard lock(all.mutex);
  const auto found = all.files.find(handle);
  if (found == all.files.end()) return CUDA_ERROR_INVALID_VALUE;
  close(found->second.descriptor);  // Mappings keep the memory, although its entry is gone.
  discharge(found->second.bytes);
  all.files.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  Allocations& all = allocations();
  const std::lock_guard lock(all.mutex);
  const auto found = all.files.find(handle);
  if (found == all.files.end() || !range_of(ptr)) return CUDA_ERROR_INVALID_VALUE;
  void* place = mmap(at(ptr), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     found->second.descriptor, static_cast<off_t>(offset));
  return place == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  if (!range_of(ptr)) return CUDA_ERROR_INVALID_VALUE;
  void* place = mmap(at(ptr), size, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return place == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace gpurun::null_device::api
