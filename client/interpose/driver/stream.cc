// Streams: made without a round trip, known in the client, run by the worker.
#include "client/interpose/call/stream.h"

#include <atomic>

#include "client/interpose/call/implicit_order.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/context_objects.h"
#include "client/interpose/driver/object_pool.h"
#include "client/interpose/memory/kept_frees.h"
#include "driver_abi/semantics/object_flags.h"

namespace gpurun::client::interpose {
namespace {

constinit ObjectPool<Stream> g_streams;
std::atomic<std::uint64_t> g_last_stream{0};

// Stream ids have the context's number in the upper half. In the lower half, 1 is the legacy
// stream. The ids of lanes follow, and then those of created streams.
constexpr int kContextShift = 32;
constexpr std::uint64_t kLegacyId = 1;
constexpr std::uint64_t kFirstLaneId = 2;
constexpr std::uint64_t kFirstCreatedId = std::uint64_t{1} << 24;
static_assert(kFirstLaneId + limits::kLanesMax < kFirstCreatedId);

CUresult create(CUstream* out, unsigned flags, int priority, bool with_priority) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || !driver_abi::is_stream_flags(flags)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CU_STREAM_NON_BLOCKING) == 0) before_blocking_stream(here);
  Stream* stream = g_streams.take();
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->flags = flags;
  stream->priority = driver_abi::clamp_priority(priority);  // As by the driver.
  stream->id = here.context->id << kContextShift | (kFirstCreatedId + g_last_stream.fetch_add(1));
  const Handle handle = here.handles().mint(HandleKind::kStream, here.context->handle, stream);
  if (handle == 0) {
    g_streams.give_back(stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CallSite site = here.site(protocol::Order::kImmediate);
  const int result =
      with_priority
          ? post_row(here, opcode::cuStreamCreateWithPriority, site, {handle}, out, flags, priority)
          : post_row(here, opcode::cuStreamCreate, site, {handle}, out, flags);
  if (result != 0) {
    end_stream(here.handles().retire(handle));
    return cuda(result);
  }
  *out = as<CUstream>(handle);
  return CUDA_SUCCESS;
}

// Prepares a query of a stream of any kind.
int enter_stream(EntryContext& here, CUstream given, Handle* stream) {
  if (const int result = here.enter_context(); result != 0) return result;
  return resolve_stream(here, given, stream);
}

// Whether a wait for the stream is answered before it is over (docs/adr/0033). Not for a blocking
// stream, because its work may be queued after work of the legacy stream.
bool waits_early(const EntryContext& here, Handle stream, int* result) {
  const Stream* const known = find_stream(here, stream);
  if (known == nullptr || (known->flags & CU_STREAM_NON_BLOCKING) == 0) return false;
  const CallSite site = here.stream_site(stream);
  if (known_idle(here, site, Waits::kForStream, result)) return true;
  // Such a wait brings no report of the stream, and the program then knows that its frees are done.
  if (kept_frees_exist() && here.session().may_wait_early(*here.lane, site.context, stream)) {
    post_kept_frees(here);
  }
  return wait_row_early(here, opcode::cuStreamSynchronize, site, result, as<CUstream>(stream));
}

}  // namespace

void end_stream(void* object) noexcept {
  if (object != nullptr) g_streams.give_back(static_cast<Stream*>(object));
}

}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuStreamCreate(CUstream* out, unsigned flags) { return create(out, flags, 0, false); }

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  return create(out, flags, priority, true);
}

// Returns at once. The driver ends the stream when its work is done.
CUresult cuStreamDestroy_v2(CUstream given) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  const Handle stream = handle_of(given);
  if (const int result = here.check_end(stream, HandleKind::kStream); result != 0) {
    return cuda(result);
  }
  const CallSite site = here.stream_site(stream);
  end_captures_of_stream(here, stream);
  // The destruction is a call of the stream, too.
  here.session().forget_stream(site.context, stream);
  const int result = post_row(here, opcode::cuStreamDestroy_v2, site, {}, given);
  end_stream(here.handles().retire(stream));
  return cuda(result);
}

CUresult cuStreamQuery(CUstream given) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  // A query proves nothing for a later wait, because only a wait brings the output of kernels.
  CallSite site = here.stream_site(stream);
  int result = 0;
  if (known_idle(here, site, Waits::kForStream, &result)) return cuda(result);
  if (here.session().poll_answered(*here.lane, site, &result)) return cuda(result);
  site.work = Work::kNone;
  return cuda(call_row(here, opcode::cuStreamQuery, site, {}, as<CUstream>(stream)));
}

CUresult cuStreamSynchronize(CUstream given) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  int result = 0;
  if (waits_early(here, stream, &result)) return cuda(result);
  return cuda(synchronize_stream(here, stream));
}

CUresult cuStreamGetFlags(CUstream given, unsigned* flags) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Stream* known = find_stream(here, stream);
  *flags = known == nullptr ? unsigned{CU_STREAM_DEFAULT} : known->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream given, int* priority) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Stream* known = find_stream(here, stream);
  *priority = known == nullptr ? 0 : known->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream given, unsigned long long* id) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const Stream* known = find_stream(here, stream); known != nullptr) {
    *id = known->id;
  } else {
    const bool own = stream == protocol::kStreamPerThread;
    *id = here.context->id << kContextShift | (own ? kFirstLaneId + here.lane->id() : kLegacyId);
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream given, CUcontext* context) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = as<CUcontext>(context_of_stream(here, stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream given, CUcontext* context, CUgreenCtx* green) {
  if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = custom::cuStreamGetCtx(given, context);
  if (result == CUDA_SUCCESS) *green = nullptr;
  return result;
}

CUresult cuStreamGetDevice(CUstream given, CUdevice* device) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = find_context(*here.process, context_of_stream(here, stream));
  if (context == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *device = context->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream given, CUevent event, unsigned flags) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  const Handle waited_for = handle_of(event);
  if (const int result = here.check(waited_for, HandleKind::kEvent); result != 0) {
    return cuda(result);
  }
  const bool external = (flags & CU_EVENT_WAIT_EXTERNAL) != 0;
  if (!driver_abi::is_event_wait_flags(flags, external && is_captured(here, stream))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const int result = note_event_wait(here, waited_for, stream, external); result != 0) {
    return cuda(result);
  }
  CallSite site = here.stream_site(stream);
  site.opcode = opcode::cuStreamWaitEvent;
  site.form = protocol::Form::kStreamWait;
  site.subject = waited_for;
  protocol::EventPayload payload;
  payload.flags = flags;
  if (here.session().is_shared(waited_for)) {
    Reply reply;
    return cuda(here.session().call(*here.lane, site, bytes_of(payload), &reply));
  }
  site.work = Work::kStreamWait;
  return cuda(here.session().post(*here.lane, site, bytes_of(payload)));
}

}  // namespace gpurun::client::interpose::custom
