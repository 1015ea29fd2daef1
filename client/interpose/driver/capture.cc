// Stream capture: beginning, ending, asking.
#include "client/interpose/capture.h"

#include "base/log.h"
#include "client/interpose/custom.h"
#include "client/interpose/device_windows.h"

namespace gpurun::client::interpose {
namespace {

int enter_stream(Here& here, CUstream given, Handle* stream) {
  if (const int result = here.enter_context(); result != 0) return result;
  return here.stream(given, stream);
}

// What may begin to capture: 0, or what is wrong.
int enter_begin(Here& here, CUstream given, CUstreamCaptureMode mode, Handle* stream) {
  if (const int result = enter_stream(here, given, stream); result != 0) return result;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The legacy stream cannot be captured.
  if (*stream < protocol::kStreamPerThread) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return is_captured(here, *stream) ? int{CUDA_ERROR_ILLEGAL_STATE} : settle_frees(here);
}

struct Status {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
};

int ask(const Here& here, Handle stream, Status* out) {
  if (!capturing_somewhere()) return 0;
  const int result = call_row(here, opcode::cuStreamGetCaptureInfo, here.stream_site(stream), {},
                              as<CUstream>(stream), &out->status, &out->id);
  if (result != 0) return result;
  const auto capture = capture_of(here, stream);
  if (capture.has_value() && capture->invalidated) {
    out->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  }
  return 0;
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuStreamBeginCapture_v2(CUstream given, CUstreamCaptureMode mode) {
  Here here;
  Handle stream = 0;
  if (const int result = enter_begin(here, given, mode, &stream); result != 0) return cuda(result);
  const int result = post_row(here, opcode::cuStreamBeginCapture_v2, here.stream_site(stream), {},
                              as<CUstream>(stream), CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result == 0) capture_begun(here, stream, static_cast<CaptureMode>(mode));
  return cuda(result);
}

CUresult cuStreamBeginCapture(CUstream stream) {
  return custom::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream given, CUgraph graph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* edges, size_t count,
                                     CUstreamCaptureMode mode) {
  Here here;
  Handle stream = 0;
  if (const int result = enter_begin(here, given, mode, &stream); result != 0) return cuda(result);
  if (const int result = here.check(handle_of(graph), HandleKind::kGraph); result != 0) {
    return cuda(result);
  }
  if (count > limits::kArrayCountMax || (count != 0 && dependencies == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const int wrong = here.check(handle_of(dependencies[i]), HandleKind::kGraphNode);
    if (wrong != 0) return cuda(wrong);
  }
  const int result = post_row(here, opcode::cuStreamBeginCaptureToGraph, here.stream_site(stream),
                              {}, as<CUstream>(stream), graph, dependencies, edges, count,
                              CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result == 0) capture_begun(here, stream, static_cast<CaptureMode>(mode));
  return cuda(result);
}

CUresult cuStreamEndCapture(CUstream given, CUgraph* out) {
  Here here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto capture = capture_of(here, stream);
  if (capture.has_value() && !capture->origin) {
    capture_invalidated(here, stream);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture.has_value() && capture->mode != CaptureMode::kRelaxed &&
      capture->lane != here.lane->id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const Handle graph = here.handles().mint(HandleKind::kGraph, 0, nullptr);
  if (graph == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraph placed = nullptr;
  const int result = call_row(here, opcode::cuStreamEndCapture, here.stream_site(stream), {graph},
                              as<CUstream>(stream), &placed);
  if (capture.has_value()) capture_ended(here, stream);
  *out = placed;
  if (placed != as<CUgraph>(graph)) here.handles().retire(graph);
  if (capture.has_value() && capture->invalidated) {
    if (placed != nullptr) (void)::cuGraphDestroy(placed);
    *out = nullptr;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return cuda(result);
}

CUresult cuStreamIsCapturing(CUstream given, CUstreamCaptureStatus* status) {
  Here here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Status found;
  const int result = ask(here, stream, &found);
  if (result == 0) *status = found.status;
  return cuda(result);
}

CUresult cuStreamGetCaptureInfo(CUstream given, CUstreamCaptureStatus* status, cuuint64_t* id) {
  Here here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Status found;
  const int result = ask(here, stream, &found);
  if (result != 0) return cuda(result);
  *status = found.status;
  if (id != nullptr && found.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) *id = found.id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* dependency_count) {
  const CUresult result = custom::cuStreamGetCaptureInfo(stream, status, id);
  if (result != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return result;
  if (graph == nullptr && dependencies == nullptr && edges == nullptr &&
      dependency_count == nullptr) {
    return CUDA_SUCCESS;
  }
  GPURUN_LOG(kWarning, "the graph of a capture that is not ended cannot be asked for yet");
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* dependency_count) {
  return custom::cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, nullptr,
                                           dependency_count);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  Here here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CaptureMode before = here.lane->capture_mode();
  here.lane->set_capture_mode(static_cast<CaptureMode>(*mode));
  *mode = static_cast<CUstreamCaptureMode>(before);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::client::interpose::custom
