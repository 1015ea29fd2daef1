// Contexts: the current one of each thread, and the fate of their objects.
#include "tests/system/interpose/program.h"

void contexts() {
  const CUcontext primary = start();
  CUcontext own = nullptr, current = nullptr, popped = nullptr;
  MUST(cuCtxCreate_v2(&own, CU_CTX_SCHED_BLOCKING_SYNC, 0));
  MUST(cuCtxGetCurrent(&current));
  EXPECT(current == own && own != primary);
  unsigned flags = 0;
  MUST(cuCtxGetFlags(&flags));
  EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
  unsigned long long id = 0, other = 0;
  MUST(cuCtxGetId(own, &id));
  MUST(cuCtxGetId(primary, &other));
  EXPECT(id != other);
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, 0));
  MUST(cuCtxPopCurrent_v2(&popped));
  EXPECT(popped == own);
  MUST(cuCtxGetCurrent(&current));
  EXPECT(current == primary);
  MUST(cuStreamGetCtx(stream, &current));
  EXPECT(current == own);
  // A stream works in its own context, whichever context is current. It does not work with another
  // context's event.
  MUST(cuStreamSynchronize(stream));
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, 0));
  MUST_BE(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, stream));
  MUST(cuCtxDestroy_v2(own));
  MUST_BE(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
  MUST_BE(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(own));
  MUST_BE(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(own));
  MUST(cuEventDestroy_v2(event));
  CUdevice device = -1;
  MUST(cuCtxGetDevice(&device));
  EXPECT(device == 0);
  MUST(cuCtxSetCurrent(nullptr));
  MUST_BE(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
}

void reset() {
  const CUcontext primary = start();
  CUdeviceptr memory = 0;
  unsigned flags = 0;
  int active = 0;
  for (int round = 0; round < 3; ++round) {
    CUstream stream = nullptr;
    MUST(cuMemAlloc_v2(&memory, 4096));
    MUST(cuStreamCreate(&stream, 0));
    MUST(cuMemsetD8Async(memory, 1, 4096, stream));
    // A context that was reset must still be released (manual, cuDevicePrimaryCtxReset).
    if (round == 1) MUST(cuDevicePrimaryCtxReset_v2(0));
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    MUST(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active == 0);
    MUST_BE(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&memory, 4096));
    CUcontext again = nullptr;
    MUST(cuDevicePrimaryCtxRetain(&again, 0));
    EXPECT(again == primary);
    MUST_BE(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    MUST(cuCtxSynchronize());
  }
}
