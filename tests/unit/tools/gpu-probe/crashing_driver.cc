// Crashing driver: a CUDA driver that returns its version and crashes at cuInit.
#include "driver_abi/cuda_abi.h"

#define GPURUN_TEST_EXPORT extern "C" __attribute__((visibility("default")))

GPURUN_TEST_EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

GPURUN_TEST_EXPORT CUresult cuInit(unsigned) { __builtin_trap(); }
