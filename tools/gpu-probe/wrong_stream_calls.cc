// Wrong calls: streams, events, stream memory operations, host functions.
#include "wrong_call.h"

namespace gpurun::probe {
namespace {

constexpr char kStream[] = "Stream Management";
constexpr char kEvent[] = "Event Management";
constexpr char kMemop[] = "Stream Memory Operations";
constexpr char kExec[] = "Execution Control";

CUstream destroyed_stream(WrongStage& s) {
  must(CU(s.driver, cuStreamDestroy_v2)(s.stream), "cuStreamDestroy");
  return s.stream;
}
CUevent destroyed_event(WrongStage& s) {
  must(CU(s.driver, cuEventDestroy_v2)(s.event), "cuEventDestroy");
  return s.event;
}
CUevent event_without_time(WrongStage& s) {
  CUevent made = nullptr;
  must(CU(s.driver, cuEventCreate)(&made, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  must(CU(s.driver, cuEventRecord)(made, s.stream), "cuEventRecord");
  return made;
}
void begin_capture(WrongStage& s) {
  must(CU(s.driver, cuStreamBeginCapture_v2)(s.stream, CU_STREAM_CAPTURE_MODE_RELAXED),
       "cuStreamBeginCapture");
}

constexpr WrongCall kCalls[] = {
    WRONG(cuStreamCreate, "NULL output", 1, kStream, kContext, (nullptr, 0)),
    WRONG(cuStreamCreate, "unknown flags", 1, kStream, kContext, (s.out<CUstream>(), 0xff)),
    WRONG(cuStreamCreate, "no current context", 201, kStream, kInit, (s.out<CUstream>(), 0)),
    WRONG(cuStreamCreateWithPriority, "priority out of range is clamped", 0, kStream, kContext,
          (s.out<CUstream>(), 0, -1000)),
    WRONG(cuStreamDestroy_v2, "NULL", 400, kStream, kContext, (nullptr)),
    WRONG(cuStreamDestroy_v2, "the legacy stream", 400, kStream, kContext, (CU_STREAM_LEGACY)),
    WRONG(cuStreamDestroy_v2, "address of zeros", 400, kStream, kContext, (zeros_as<CUstream>())),
    WRONG(cuStreamDestroy_v2, "unmapped address", 400, kStream, kContext, (hole_as<CUstream>())),
    WRONG(cuStreamDestroy_v2, "twice", 400, kStream, kContext, (destroyed_stream(s))),
    WRONG(cuStreamSynchronize, "address of zeros", 400, kStream, kContext, (zeros_as<CUstream>())),
    WRONG(cuStreamSynchronize, "unmapped address", 400, kStream, kContext, (hole_as<CUstream>())),
    WRONG(cuStreamSynchronize, "destroyed", 400, kStream, kContext, (destroyed_stream(s))),
    WRONG(cuStreamQuery, "address of zeros", 400, kStream, kContext, (zeros_as<CUstream>())),
    WRONG(cuStreamGetFlags, "NULL output", 1, kStream, kContext, (s.stream, nullptr)),
    WRONG(cuStreamGetPriority, "address of zeros", 400, kStream, kContext,
          (zeros_as<CUstream>(), s.out<int>())),
    WRONG(cuStreamGetCtx, "address of zeros", 400, kStream, kContext,
          (zeros_as<CUstream>(), s.out<CUcontext>())),
    WRONG(cuStreamGetId, "NULL output", 1, kStream, kContext, (s.stream, nullptr)),
    WRONG(cuStreamWaitEvent, "NULL event", 400, kStream, kContext, (s.stream, nullptr, 0)),
    WRONG(cuStreamWaitEvent, "event of zeros", 400, kStream, kContext,
          (s.stream, zeros_as<CUevent>(), 0)),
    WRONG(cuStreamWaitEvent, "unknown flags", 1, kStream, kContext, (s.stream, s.event, 0xff)),
    WRONG(cuStreamWaitEvent, "event never recorded is no work", 0, kStream, kContext,
          (s.stream, s.event, 0)),
    WRONG(cuStreamAddCallback, "NULL callback", 1, kStream, kContext,
          (s.stream, nullptr, nullptr, 0)),
    WRONG(cuStreamAddCallback, "flags are not 0", 1, kStream, kContext,
          (
              s.stream, [](CUstream, CUresult, void*) {}, nullptr, 1)),
    WRONG(cuLaunchHostFunc, "NULL function", 1, kExec, kContext, (s.stream, nullptr, nullptr)),
    WRONG(cuLaunchHostFunc, "stream of zeros", 400, kExec, kContext,
          (
              zeros_as<CUstream>(), [](void*) {}, nullptr)),
    WRONG(cuStreamAttachMemAsync, "memory that is not managed", 1, kStream, kContext,
          (s.stream, s.memory, 0, CU_MEM_ATTACH_SINGLE)),
    WRONG(cuStreamBeginCapture_v2, "the legacy stream", 900, kStream, kContext,
          (nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL)),
    WRONG(cuStreamBeginCapture_v2, "unknown mode", 1, kStream, kContext,
          (s.stream, number_as<CUstreamCaptureMode>(9))),
    WRONG_AFTER(cuStreamBeginCapture_v2, "twice", kNotInTheManual, "", kContext, begin_capture(s);
                , (s.stream, CU_STREAM_CAPTURE_MODE_GLOBAL)),
    WRONG(cuStreamEndCapture, "no capture", kNotInTheManual, "", kContext,
          (s.stream, s.out<CUgraph>())),
    WRONG_AFTER(cuStreamEndCapture, "NULL output", 1, kStream, kContext, begin_capture(s);
                , (s.stream, nullptr)),
    WRONG_AFTER(cuStreamSynchronize, "capturing", 900, kStream, kContext, begin_capture(s);
                , (s.stream)),
    WRONG_AFTER(cuStreamQuery, "capturing", 900, kStream, kContext, begin_capture(s);, (s.stream)),
    WRONG_AFTER(cuStreamDestroy_v2, "capturing", kNotInTheManual, "", kContext, begin_capture(s);
                , (s.stream)),
    WRONG_AFTER(cuMemAlloc_v2, "while capturing relaxed is allowed", 0, kStream, kContext,
                begin_capture(s);
                , (s.out<CUdeviceptr>(), 16)),
    WRONG(cuThreadExchangeStreamCaptureMode, "NULL", 1, kStream, kContext, (nullptr)),
    WRONG(cuStreamIsCapturing, "NULL output", 1, kStream, kContext, (s.stream, nullptr)),
    WRONG(cuStreamIsCapturing, "address of zeros", 400, kStream, kContext,
          (zeros_as<CUstream>(), s.out<CUstreamCaptureStatus>())),
    WRONG(cuStreamWaitValue32_v2, "misaligned", 1, kMemop, kContext,
          (s.stream, s.memory + 1, 0, 0)),
    WRONG(cuStreamWaitValue32_v2, "unknown address", 1, kMemop, kContext,
          (s.stream, 0x1234500, 0, 0)),
    WRONG(cuStreamWaitValue32_v2, "unknown flags", 1, kMemop, kContext,
          (s.stream, s.memory, 0, 0xff00)),
    WRONG(cuStreamWriteValue32_v2, "misaligned", 1, kMemop, kContext,
          (s.stream, s.memory + 2, 0, 0)),
    WRONG(cuStreamWriteValue64_v2, "misaligned", 1, kMemop, kContext,
          (s.stream, s.memory + 4, 0, 0)),
    WRONG(cuStreamBatchMemOp_v2, "NULL list", 1, kMemop, kContext, (s.stream, 1, nullptr, 0)),
    WRONG(cuEventCreate, "unknown flags", 1, kEvent, kContext, (s.out<CUevent>(), 0xff00)),
    WRONG(cuEventCreate, "interprocess with timing", 1, kEvent, kContext,
          (s.out<CUevent>(), CU_EVENT_INTERPROCESS)),
    WRONG(cuEventCreate, "NULL output", 1, kEvent, kContext, (nullptr, 0)),
    WRONG(cuEventDestroy_v2, "NULL", 400, kEvent, kContext, (nullptr)),
    WRONG(cuEventDestroy_v2, "address of zeros", 400, kEvent, kContext, (zeros_as<CUevent>())),
    WRONG(cuEventDestroy_v2, "twice", 400, kEvent, kContext, (destroyed_event(s))),
    WRONG(cuEventRecord, "NULL event", 400, kEvent, kContext, (nullptr, s.stream)),
    WRONG(cuEventRecord, "event of zeros", 400, kEvent, kContext, (zeros_as<CUevent>(), s.stream)),
    WRONG(cuEventRecord, "stream of zeros", 400, kEvent, kContext, (s.event, zeros_as<CUstream>())),
    WRONG(cuEventRecord, "destroyed event", 400, kEvent, kContext, (destroyed_event(s), s.stream)),
    WRONG(cuEventQuery, "address of zeros", 400, kEvent, kContext, (zeros_as<CUevent>())),
    WRONG(cuEventQuery, "never recorded is complete", 0, kEvent, kContext, (s.event)),
    WRONG(cuEventSynchronize, "never recorded returns at once", 0, kEvent, kContext, (s.event)),
    WRONG(cuEventSynchronize, "address of zeros", 400, kEvent, kContext, (zeros_as<CUevent>())),
    WRONG(cuEventElapsedTime_v2, "never recorded", 400, kEvent, kContext,
          (s.out<float>(), s.event, s.event)),
    WRONG(cuEventElapsedTime_v2, "without timing", 400, kEvent, kContext,
          (s.out<float>(), event_without_time(s), s.event)),
    WRONG(cuEventElapsedTime_v2, "NULL output", 1, kEvent, kContext, (nullptr, s.event, s.event)),
};

}  // namespace

std::span<const WrongCall> wrong_stream_calls() { return kCalls; }

}  // namespace gpurun::probe
