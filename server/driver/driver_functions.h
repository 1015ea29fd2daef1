// DriverFunctions: the few driver functions that the call path itself calls, for hot records,
// staging and events. Other rows go through libffi from the table and are not named here.
//
// Types are CUDA's only by shape (handles are void*, CUdeviceptr is 64 bits), because the product
// is built without a CUDA toolkit. Each function has the semantics of its namesake in the CUDA
// Driver API.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace gpurun::server {

// CUlaunchConfig (cuda.h).
struct DriverLaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  void* attributes;  // CUlaunchAttribute*, 72 bytes each.
  unsigned attribute_count;
};
static_assert(sizeof(DriverLaunchConfig) == 56);

struct DriverFunctions {
  int (*cuInit)(unsigned) = nullptr;
  int (*cuCtxSetCurrent)(void*) = nullptr;
  int (*cuCtxSynchronize)() = nullptr;
  int (*cuThreadExchangeStreamCaptureMode)(int*) = nullptr;
  int (*cuStreamCreate)(void**, unsigned) = nullptr;
  int (*cuStreamDestroy)(void*) = nullptr;
  int (*cuStreamGetFlags)(void*, unsigned*) = nullptr;
  int (*cuStreamGetCtx)(void*, void**) = nullptr;
  int (*cuStreamIsCapturing)(void*, int*) = nullptr;
  int (*cuStreamSynchronize)(void*) = nullptr;
  int (*cuStreamQuery)(void*) = nullptr;
  int (*cuStreamWaitEvent)(void*, void*, unsigned) = nullptr;
  int (*cuEventCreate)(void**, unsigned) = nullptr;
  int (*cuEventDestroy)(void*) = nullptr;
  int (*cuEventRecord)(void*, void*) = nullptr;
  int (*cuEventRecordWithFlags)(void*, void*, unsigned) = nullptr;
  int (*cuEventQuery)(void*) = nullptr;
  int (*cuEventSynchronize)(void*) = nullptr;
  int (*cuLaunchKernelEx)(const DriverLaunchConfig*, void*, void**, void**) = nullptr;
  int (*cuMemcpyHtoDAsync)(std::uint64_t, const void*, std::size_t, void*) = nullptr;
  int (*cuMemcpyDtoHAsync)(void*, std::uint64_t, std::size_t, void*) = nullptr;
  int (*cuMemcpyDtoDAsync)(std::uint64_t, std::uint64_t, std::size_t, void*) = nullptr;
  int (*cuMemcpy3DAsync)(const void*, void*) = nullptr;  // CUDA_MEMCPY3D.
  int (*cuMemsetD8Async)(std::uint64_t, unsigned char, std::size_t, void*) = nullptr;
  int (*cuMemsetD16Async)(std::uint64_t, unsigned short, std::size_t, void*) = nullptr;
  int (*cuMemsetD32Async)(std::uint64_t, unsigned, std::size_t, void*) = nullptr;
  int (*cuMemsetD2D8Async)(std::uint64_t, std::size_t, unsigned char, std::size_t, std::size_t,
                           void*) = nullptr;
  int (*cuMemsetD2D16Async)(std::uint64_t, std::size_t, unsigned short, std::size_t, std::size_t,
                            void*) = nullptr;
  int (*cuMemsetD2D32Async)(std::uint64_t, std::size_t, unsigned, std::size_t, std::size_t,
                            void*) = nullptr;
  int (*cuMemHostAlloc)(void**, std::size_t, unsigned) = nullptr;
  int (*cuMemFreeHost)(void*) = nullptr;
  int (*cuMemHostRegister)(void*, std::size_t, unsigned) = nullptr;
  int (*cuMemHostUnregister)(void*) = nullptr;

  // Looks each function up by its exported name (cuMemcpyHtoDAsync_v2, ...) in `library`, a dlopen
  // handle. kUnavailable names the first one that is missing.
  static Result<DriverFunctions> from_library(void* library);
};

}  // namespace gpurun::server
