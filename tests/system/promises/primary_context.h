// Primary context: makes that of the first device current in the calling thread.
#pragma once

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"

inline CUcontext make_primary_context() {
  MUST(cuInit(0));
  CUdevice device = 0;
  MUST(cuDeviceGet(&device, 0));
  CUcontext context = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  return context;
}
