// Streams, events and captures: their attributes, and the calls that a capture forbids.
#include <cstring>
#include <thread>

#include "tests/system/interpose/program.h"

void streams() {
  start();
  int least = -1, greatest = 1, priority = 0;
  MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT(least == 0 && greatest <= 0);
  CUstream stream = nullptr;
  MUST(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 7));
  MUST(cuStreamGetPriority(stream, &priority));
  EXPECT(priority == greatest);
  unsigned flags = 0;
  MUST(cuStreamGetFlags(stream, &flags));
  EXPECT(flags == CU_STREAM_NON_BLOCKING);
  unsigned long long id = 0, legacy = 0, own = 0, others = 0;
  MUST(cuStreamGetId(stream, &id));
  MUST(cuStreamGetId(nullptr, &legacy));
  MUST(cuStreamGetId(CU_STREAM_PER_THREAD, &own));
  EXPECT(id != legacy && id != own && legacy != own);
  CUcontext context = nullptr;
  MUST(cuCtxGetCurrent(&context));
  std::thread([&] {
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamGetId(CU_STREAM_PER_THREAD, &others));
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT(others != own);
  CUevent first = nullptr, last = nullptr;
  MUST(cuEventCreate(&first, 0));
  MUST(cuEventCreate(&last, 0));
  MUST(cuEventQuery(first));  // Never recorded, so it is complete.
  MUST(cuEventRecord(first, stream));
  MUST(cuStreamWaitEvent(nullptr, first, 0));
  MUST(cuEventRecord(last, nullptr));
  MUST(cuEventSynchronize(last));
  float milliseconds = -1;
  MUST(cuEventElapsedTime(&milliseconds, first, last));
  EXPECT(milliseconds >= 0);
  MUST(cuStreamQuery(stream));
  MUST(cuEventDestroy_v2(first));
  MUST_BE(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(first, stream));
  MUST(cuStreamDestroy_v2(stream));
  MUST_BE(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
}

void capture() {
  start();
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  MUST(cuStreamIsCapturing(stream, &status));
  EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
  MUST_BE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
}
