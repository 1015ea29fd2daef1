// Events: made without a round trip. A completion that the worker reports is not asked for.
#include <atomic>

#include "client/interpose/call/stream.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "driver_abi/semantics/object_flags.h"

namespace gpurun::client::interpose {
namespace {

// An event was made for other processes. One of them may query it as soon as a wait is over.
std::atomic<bool> interprocess_events{false};

// Prepares a call that reads an event or `ends` it. The call runs after earlier users of the event.
int enter_event(EntryContext& here, CUevent given, bool ends, CallSite* site) {
  if (const int result = here.enter(); result != 0) return result;
  const Handle event = handle_of(given);
  const int wrong =
      ends ? here.check_end(event, HandleKind::kEvent) : here.check(event, HandleKind::kEvent);
  if (wrong != 0) return wrong;
  here.context = find_context(*here.process, here.handles().context_of(event));
  if (here.context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *site = here.site(protocol::Order::kLane);
  site->subject = event;
  return 0;
}

CUresult record(CUevent given, CUstream given_stream, unsigned flags, std::uint16_t code) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Handle stream = 0;
  if (const int result = resolve_stream(here, given_stream, &stream); result != 0)
    return cuda(result);
  const Handle event = handle_of(given);
  if (const int result = here.check(event, HandleKind::kEvent); result != 0) return cuda(result);
  if (!driver_abi::is_event_record_flags(flags, flags != 0 && is_captured(here, stream))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CallSite site = here.stream_site(stream);
  // Event and stream must be of one context (manual, cuEventRecord).
  if (here.handles().context_of(event) != site.context) return CUDA_ERROR_INVALID_HANDLE;
  note_event_record(here, event, stream, (flags & CU_EVENT_RECORD_EXTERNAL) != 0);
  site.opcode = code;
  site.form = protocol::Form::kEventRecord;
  site.flags = protocol::kFlagWritesSubject;
  // In a capture the record becomes a node, and each launch of the graph records the event.
  if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) here.session().event_recorded_elsewhere(event);
  if (here.session().event_wanted(event)) site.flags |= protocol::kFlagTell;
  site.subject = event;
  const bool captured = capturing_somewhere() && is_captured(here, stream);
  if (!captured && !interprocess_events.load(std::memory_order_relaxed)) {
    site.work = Work::kRecord;
  }
  protocol::EventPayload payload;
  payload.flags = flags;
  if (here.session().is_shared(event)) {
    Reply reply;
    return cuda(here.session().call(*here.lane, site, bytes_of(payload), &reply));
  }
  return cuda(here.session().post(*here.lane, site, bytes_of(payload)));
}

// Whether a wait for the event is answered before it is over (docs/adr/0033, 0036). The event must
// have been recorded in a non-blocking stream (see waits_early() in stream.cc) that does not
// capture now.
bool waits_early(const EntryContext& here, CUevent given, int* result) {
  const Handle event = handle_of(given);
  const Session::Recorded recorded = here.session().stream_of_record(event);
  const Stream* const known = find_stream(here, recorded.stream);
  const bool worker_knows =
      (here.process->features & protocol::feature_bit(protocol::Feature::kEarlyEventWaits)) != 0;
  if (known == nullptr || (known->flags & CU_STREAM_NON_BLOCKING) == 0 || !worker_knows ||
      (capturing_somewhere() && is_captured(here, recorded.stream))) {
    return false;
  }
  // Event and stream have one context. Another thread may end the stream meanwhile.
  CallSite site = here.site(protocol::Order::kStream);
  site.stream = recorded.stream;
  site.subject = event;
  return wait_row_early(here, opcode::cuEventSynchronize, recorded, site, result, given);
}

CUresult ask(CUevent given, std::uint16_t code, bool wait) {
  EntryContext here;
  CallSite site;
  if (const int result = enter_event(here, given, false, &site); result != 0) return cuda(result);
  if (const int result = refuse_event(here, site.subject); result != 0) return cuda(result);
  site.opcode = code;
  int result = 0;
  if (wait && waits_early(here, given, &result)) return cuda(result);
  if (here.session().event_answered(*here.lane, site, wait, &result)) return cuda(result);
  return cuda(call_row(here, code, site, {}, given));
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuEventCreate(CUevent* out, unsigned flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || !driver_abi::is_event_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) interprocess_events = true;
  const Handle event = here.handles().mint(HandleKind::kEvent, here.context->handle, nullptr);
  if (event == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result = post_row(here, opcode::cuEventCreate, here.site(protocol::Order::kImmediate),
                              {event}, out, flags);
  if (result != 0) {
    here.handles().retire(event);
    return cuda(result);
  }
  *out = as<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent given) {
  EntryContext here;
  CallSite site;
  if (const int result = enter_event(here, given, true, &site); result != 0) return cuda(result);
  site.flags = protocol::kFlagWritesSubject;
  const int result = post_row(here, opcode::cuEventDestroy_v2, site, {}, given);
  here.handles().retire(handle_of(given));
  note_event_end(handle_of(given));
  return cuda(result);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return record(event, stream, 0, opcode::cuEventRecord);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return record(event, stream, flags, opcode::cuEventRecordWithFlags);
}

CUresult cuEventQuery(CUevent given) { return ask(given, opcode::cuEventQuery, false); }

CUresult cuEventSynchronize(CUevent given) { return ask(given, opcode::cuEventSynchronize, true); }

}  // namespace gpurun::client::interpose::custom
