// Older names: names that NVIDIA's samples of CUDA 11.8 use and CUDA 13 removed. They are the
// second version of cuCtxCreate under its plain name, and members of cudaDeviceProp, which are
// attributes of the device now. They are locations of managed memory as plain device numbers,
// Thrust's function bases, and the experimental part of cooperative groups, which is part of the
// plain one now.
#pragma once
#include <cuda.h>
#ifdef __cplusplus
extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice);
#undef cuCtxCreate
#define cuCtxCreate cuCtxCreate_v2

#include <cuda_runtime.h>

struct DevicePropOf11 : cudaDeviceProp {
  int clockRate, computeMode, cooperativeMultiDeviceLaunch, deviceOverlap, kernelExecTimeoutEnabled;
  int memoryClockRate, singleToDoublePrecisionPerfRatio;
};

static inline cudaError_t get_properties_of_11(DevicePropOf11* prop, int device) {
  cudaError_t error = cudaGetDeviceProperties(static_cast<cudaDeviceProp*>(prop), device);
  const auto ask = [&](int* into, cudaDeviceAttr attribute) {
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(into, attribute, device);
  };
  ask(&prop->clockRate, cudaDevAttrClockRate);
  ask(&prop->computeMode, cudaDevAttrComputeMode);
  ask(&prop->deviceOverlap, cudaDevAttrGpuOverlap);
  ask(&prop->kernelExecTimeoutEnabled, cudaDevAttrKernelExecTimeout);
  ask(&prop->memoryClockRate, cudaDevAttrMemoryClockRate);
  ask(&prop->singleToDoublePrecisionPerfRatio, cudaDevAttrSingleToDoublePrecisionPerfRatio);
  prop->cooperativeMultiDeviceLaunch = 0;  // CUDA 13 has no such launch.
  return error;
}

#define cudaDeviceProp DevicePropOf11
#define cudaGetDeviceProperties get_properties_of_11

static inline cudaMemLocation place_of_11(int device) {
  cudaMemLocation place = {};
  place.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  place.id = device == cudaCpuDeviceId ? 0 : device;
  return place;
}

static inline cudaError_t cudaMemPrefetchAsync(const void* at, size_t bytes, int device,
                                               cudaStream_t stream = nullptr) {
  return cudaMemPrefetchAsync(at, bytes, place_of_11(device), 0, stream);
}

static inline cudaError_t cudaMemAdvise(const void* at, size_t bytes, cudaMemoryAdvise advice,
                                        int device) {
  return cudaMemAdvise(at, bytes, advice, place_of_11(device));
}

namespace thrust {
template <typename Argument, typename Result>
struct unary_function {
  using argument_type = Argument;
  using result_type = Result;
};

template <typename T>
struct identity {
  __host__ __device__ const T& operator()(const T& value) const { return value; }
};
}  // namespace thrust

#ifdef __CUDACC__
#include <cooperative_groups.h>
namespace cooperative_groups {
namespace experimental {
template <unsigned int bytes_of_one, unsigned int threads>
using block_tile_memory = cooperative_groups::block_tile_memory<threads>;
using cooperative_groups::this_thread_block;
using cooperative_groups::tiled_partition;
}  // namespace experimental
}  // namespace cooperative_groups
#endif
#endif
