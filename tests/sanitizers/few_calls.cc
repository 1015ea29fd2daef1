// few_calls: a small program of the driver API. The client answers one of its calls, and several
// reach the worker. It does not know gpurun.
#include <cstdio>

#include "driver_abi/cuda_abi.h"

int main() {
  int devices = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices == 0 ||
      cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS || cuStreamCreate(&stream, 0) != CUDA_SUCCESS ||
      cuStreamSynchronize(stream) != CUDA_SUCCESS) {
    return 1;
  }
  std::puts("PASSED");
  return 0;
}
