// Plugin: a library that computes with CUDA, and frees its memory in its destructor.
#include "driver_abi/cuda_abi.h"

namespace {

CUdeviceptr kept = 0;

struct Guard {
  ~Guard() {
    if (kept != 0) static_cast<void>(cuMemFree_v2(kept));
  }
} guard;

}  // namespace

// Returns 0, or the code of the failure.
extern "C" [[gnu::visibility("default")]] int plugin_run() {
  CUcontext context = nullptr;
  int result = cuInit(0);
  if (result == 0) result = cuDevicePrimaryCtxRetain(&context, 0);
  if (result == 0) result = cuCtxSetCurrent(context);
  if (result == 0) result = cuMemAlloc_v2(&kept, 4096);
  if (result == 0) result = cuMemsetD8_v2(kept, 6, 4096);
  unsigned char got[4096] = {};
  if (result == 0) result = cuMemcpyDtoH_v2(got, kept, sizeof got);
  if (result == 0 && got[4095] != 6) result = -1;
  return result;
}
