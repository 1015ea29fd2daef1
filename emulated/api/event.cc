// Events: marks in streams that calls wait for, query and time.
#include "emulated/objects/event.h"
#include "driver_abi/semantics/object_flags.h"
#include "emulated/api/entry.h"
#include "emulated/objects/capture.h"
#include "emulated/objects/graph_exec.h"

namespace gpurun::emulated {

CUresult record_event(const ContextPtr& context, const StreamPtr& stream, const EventPtr& event) {
  if (&event->context() != &stream->context()) return CUDA_ERROR_INVALID_HANDLE;
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kWork, *stream));
  if (const auto capture = stream->capture()) {
    event->set_captured({capture, capture->frontier(*stream)});
    return CUDA_SUCCESS;
  }
  const OccurrencePtr occurrence = event->begin();
  const CUresult issued = submit(context, stream, std::make_shared<RecordOperation>(occurrence));
  if (issued != CUDA_SUCCESS) {
    occurrence->complete();  // Other processes may wait for it already.
    return issued;
  }
  event->set_last(occurrence);
  return CUDA_SUCCESS;
}

CUresult wait_for_event(const ContextPtr& context, const StreamPtr& stream, const EventPtr& event) {
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kWork, *stream));
  const Event::CapturedMark mark = event->captured();
  if (mark.capture != nullptr) return mark.capture->join(stream, mark.nodes);
  if (const auto capture = stream->capture()) {
    // Captured work cannot depend on work outside of the capture.
    capture->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  const OccurrencePtr occurrence = event->last();
  if (occurrence == nullptr || occurrence->done()) return CUDA_SUCCESS;
  return submit(context, stream, std::make_shared<WaitOperation>(occurrence));
}

}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuEventCreate(CUevent* out, unsigned int flags) {
  GPURUN_ENTER(context);
  if (out == nullptr || !driver_abi::is_event_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<SharedEvent> shared;
  if ((flags & CU_EVENT_INTERPROCESS) != 0 && (shared = SharedEvent::create()) == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto event = handles().add(std::make_shared<Event>(context, flags, std::move(shared)));
  context->own(*event);
  *out = event->as<CUevent>();
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  ContextPtr context;
  GPURUN_TRY(enter_context_even_failed(&context));
  const auto event = handles().remove<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  event->context().disown(*event);
  return context->sticky_error();
}

CUresult cuEventRecordWithFlags(CUevent event_handle, CUstream stream_handle, unsigned int flags) {
  GPURUN_ENTER(context);
  const auto event = handles().find<Event>(event_handle);
  const StreamPtr stream = find_stream(context, stream_handle);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!driver_abi::is_event_record_flags(flags, stream->capture() != nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) {
    return submit(context, stream, std::make_shared<GraphEventOperation>(event, true));
  }
  return record_event(context, stream, event);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return api::cuEventRecordWithFlags(event, stream, 0);
}

// An event belongs to one context, so a thread without a context may query it. NVIDIA's runtime
// lets it (PyTorch's loaders do), and cuda.h does not list INVALID_CONTEXT among the results.
CUresult cuEventQuery(CUevent handle) {
  GPURUN_TRY(enter_driver());
  if (thread_state().current() != nullptr) {
    GPURUN_ENTER(context);
  }
  const auto event = handles().find<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  GPURUN_TRY(check_event_use(*event));
  const OccurrencePtr occurrence = event->last();
  if (occurrence != nullptr && !occurrence->done()) return CUDA_ERROR_NOT_READY;
  return event->context().sticky_error();
}

CUresult cuEventSynchronize(CUevent handle) {
  GPURUN_ENTER(context);
  const auto event = handles().find<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  GPURUN_TRY(check_event_use(*event));
  if (const OccurrencePtr occurrence = event->last()) occurrence->wait();
  event->context().flush_output();
  return event->context().sticky_error();
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  GPURUN_ENTER(context);
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto start = handles().find<Event>(start_handle);
  const auto end = handles().find<Event>(end_handle);
  if (start == nullptr || end == nullptr ||
      ((start->flags() | end->flags()) & CU_EVENT_DISABLE_TIMING) != 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const OccurrencePtr first = start->last();
  const OccurrencePtr last = end->last();
  if (first == nullptr || last == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!first->done() || !last->done()) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(last->when() - first->when()).count();
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return api::cuEventElapsedTime_v2(milliseconds, start, end);
}

}  // namespace gpurun::emulated::api
