// Copies: each path between host and device carries every byte, for all sizes, and pointers have
// the right attributes.
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/system/interpose/program.h"

namespace {

using Bytes = std::vector<unsigned char>;

Bytes pattern(std::size_t count, unsigned seed) {
  Bytes bytes(count);
  std::uint64_t state = seed * 2654435761u + 1;
  for (unsigned char& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<unsigned char>(state >> 56);
  }
  return bytes;
}

void check_size(std::size_t count, unsigned seed) {
  const Bytes sent = pattern(count, seed);
  Bytes got(count);
  CUdeviceptr a = 0, b = 0;
  MUST(cuMemAlloc_v2(&a, count));
  MUST(cuMemAlloc_v2(&b, count));
  MUST(cuMemcpyHtoD_v2(a, sent.data(), count));
  MUST(cuMemcpyDtoD_v2(b, a, count));
  MUST(cuMemcpyDtoH_v2(got.data(), b, count));
  EXPECT(got == sent);

  // On a non-blocking stream, with the source changed as soon as the call returns.
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Bytes changing = pattern(count, seed + 1);
  const Bytes expected = changing;
  MUST(cuMemcpyHtoDAsync_v2(a, changing.data(), count, stream));
  std::memset(changing.data(), 0, count);
  MUST(cuMemcpyDtoHAsync_v2(got.data(), a, count, stream));
  MUST(cuStreamSynchronize(stream));
  EXPECT(got == expected);

  // Into pinned memory. The bytes are complete when a later event is.
  void* pinned = nullptr;
  MUST(cuMemHostAlloc(&pinned, count, 0));
  CUevent done = nullptr;
  MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  MUST(cuMemsetD8Async(b, 0x5a, count, stream));
  MUST(cuMemcpyDtoHAsync_v2(pinned, b, count, stream));
  MUST(cuEventRecord(done, stream));
  MUST(cuEventSynchronize(done));
  for (std::size_t i = 0; i < count; ++i) EXPECT(static_cast<unsigned char*>(pinned)[i] == 0x5a);
  MUST(cuMemFreeHost(pinned));
  MUST(cuEventDestroy_v2(done));
  MUST(cuStreamDestroy_v2(stream));

  // With the direction given by the addresses alone.
  MUST(cuMemcpy(a, reinterpret_cast<std::uintptr_t>(sent.data()), count));
  MUST(cuMemcpy(b, a, count));
  MUST(cuMemcpy(reinterpret_cast<std::uintptr_t>(got.data()), b, count));
  EXPECT(got == sent);
  MUST(cuMemFree_v2(a));
  MUST(cuMemFree_v2(b));
}

}  // namespace

void copies() {
  start();
  // Around the size limits of data inside a record and of one bulk chunk.
  unsigned seed = 1;
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{4095}, std::size_t{8192}, std::size_t{8193},
        std::size_t{524288}, std::size_t{524289}, std::size_t{5'000'001}}) {
    check_size(count, seed += 2);
  }
}

void blocks() {
  start();
  constexpr std::size_t kWidth = 300, kHeight = 37, kDepth = 3, kHostPitch = 512;
  const Bytes sent = pattern(kHostPitch * kHeight * kDepth, 5);
  CUdeviceptr device = 0;
  std::size_t pitch = 0;
  MUST(cuMemAllocPitch_v2(&device, &pitch, kWidth, kHeight * kDepth, 4));
  EXPECT(pitch >= kWidth);
  CUDA_MEMCPY3D in{};
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = sent.data();
  in.srcPitch = kHostPitch;
  in.srcHeight = kHeight;
  in.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  in.dstDevice = device;
  in.dstPitch = pitch;
  in.dstHeight = kHeight;
  in.WidthInBytes = kWidth;
  in.Height = kHeight;
  in.Depth = kDepth;
  MUST(cuMemcpy3D_v2(&in));
  // Back without gaps, from the second column on.
  Bytes got((kWidth - 1) * kHeight * kDepth);
  CUDA_MEMCPY2D out{};
  out.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  out.srcDevice = device;
  out.srcPitch = pitch;
  out.srcXInBytes = 1;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = got.data();
  out.dstPitch = kWidth - 1;
  out.WidthInBytes = kWidth - 1;
  out.Height = kHeight * kDepth;
  MUST(cuMemcpy2D_v2(&out));
  for (std::size_t line = 0; line < kHeight * kDepth; ++line) {
    EXPECT(std::memcmp(&got[line * (kWidth - 1)], &sent[line * kHostPitch + 1], kWidth - 1) == 0);
  }
  out.dstPitch = kWidth - 2;
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&out));
  MUST(cuMemFree_v2(device));
}

void pointers() {
  const CUcontext context = start();
  constexpr std::size_t kBytes = 1 << 20;
  CUdeviceptr device = 0;
  MUST(cuMemAlloc_v2(&device, kBytes));
  unsigned type = 0;
  int ordinal = -1;
  CUcontext owner = nullptr;
  CUdeviceptr from = 0;
  std::size_t size = 0;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* into[] = {&type, &ordinal, &owner, &from, &size};
  MUST(cuPointerGetAttributes(5, which, into, device + 4711));
  EXPECT(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && owner == context);
  EXPECT(from == device && size == kBytes);
  CUdeviceptr base = 0;
  MUST(cuMemGetAddressRange_v2(&base, &size, device + kBytes - 1));
  EXPECT(base == device && size == kBytes);
  // No memory of this process can have the device's addresses.
  void* wanted = reinterpret_cast<void*>(device & ~CUdeviceptr{4095});
  EXPECT(mmap(wanted, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
         MAP_FAILED);

  int here = 0;
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                          reinterpret_cast<std::uintptr_t>(&here)));
  MUST(cuPointerGetAttributes(5, which, into, reinterpret_cast<std::uintptr_t>(&here)));
  EXPECT(type == 0 && ordinal == -2 && owner == nullptr);

  Bytes plain(10'000);
  MUST(cuMemHostRegister_v2(plain.data(), plain.size(), 0));
  MUST_BE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
          cuMemHostRegister_v2(plain.data() + 5000, 100, 0));
  MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                             reinterpret_cast<std::uintptr_t>(plain.data() + 9999)));
  EXPECT(type == CU_MEMORYTYPE_HOST);
  MUST(cuMemHostUnregister(plain.data()));
  MUST_BE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(plain.data()));
  MUST(cuMemFree_v2(device));
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
}

void errors() {
  MUST_BE(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuInit(1));
  MUST(cuInit(0));
  CUdeviceptr device = 0;
  MUST_BE(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&device, 16));
  start();
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&device, 0));
  MUST_BE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&device, std::size_t{1} << 46));
  MUST(cuMemAlloc_v2(&device, 100));
  char bytes[200] = {};
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(device, bytes, 101));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(bytes, device + 1, 100));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(device + 1, 0, 4));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(device, 0, 101));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(device + 1));
  MUST(cuMemFree_v2(device));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(device));
  MUST_BE(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(reinterpret_cast<CUstream>(&bytes)));
  CUstream stream = nullptr;
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 8));
  MUST_BE(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRelease_v2(77));
  MUST(cuCtxSynchronize());
}

// A driver with such pools would return addresses of the server's host memory. So the client
// refuses them, on the null device as on one that has them.
void pool_places() {
  start();
  CUmemoryPool pool = nullptr;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  for (const auto type : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA}) {
    properties.location.type = type;
    MUST_BE(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&pool, &properties));
    CUmemLocation place = properties.location;
    MUST_BE(CUDA_ERROR_NOT_SUPPORTED,
            cuMemGetMemPool(&pool, &place, CU_MEM_ALLOCATION_TYPE_PINNED));
    MUST_BE(CUDA_ERROR_NOT_SUPPORTED,
            cuMemGetDefaultMemPool(&pool, &place, CU_MEM_ALLOCATION_TYPE_PINNED));
  }
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  MUST_BE(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&pool, &properties));
}

void pools() {
  start();
  CUmemoryPool pool = nullptr;
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  // Values of eight bytes and of four: a longer value would overwrite the bytes after it.
  cuuint64_t threshold = 123'456'789'012;
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  threshold = 0;
  MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  EXPECT(threshold == 123'456'789'012);
  int reuse[2] = {0, 77};
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, reuse));
  reuse[0] = 5;
  MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, reuse));
  EXPECT(reuse[0] == 0 && reuse[1] == 77);
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr memory = 0;
  MUST(cuMemAllocFromPoolAsync(&memory, 10'000, pool, stream));
  CUmemoryPool from = nullptr;
  MUST(cuPointerGetAttribute(&from, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
  EXPECT(from == pool);
  MUST(cuMemsetD8Async(memory, 9, 10'000, stream));
  unsigned char got[10'000];
  MUST(cuMemcpyDtoHAsync_v2(got, memory, sizeof got, stream));
  EXPECT(got[0] == 9 && got[9'999] == 9);
  MUST(cuMemFreeAsync(memory, stream));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, stream));
  MUST(cuStreamSynchronize(stream));
}
