// What NVIDIA's samples of CUDA 11.8 use and CUDA 13 took away: the second version of cuCtxCreate
// by its plain name, and members of cudaDeviceProp, which are attributes of the device now.
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
  prop->cooperativeMultiDeviceLaunch = 0;  // There is none in CUDA 13.
  return error;
}

#define cudaDeviceProp DevicePropOf11
#define cudaGetDeviceProperties get_properties_of_11
#endif
