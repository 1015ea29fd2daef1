// Hot calls: one driver call for each hot record.
#include "server/worker/execution/hot_calls.h"

#include <cstring>

#include "server/bulk/bulk_lanes.h"
#include "server/worker/execution/completions.h"
#include "server/worker/execution/copy_parts.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {
namespace {

using protocol::EventPayload;
using protocol::Form;
using protocol::MemsetPayload;

constexpr int kErrorCaptureUnsupported = 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (cuda.h).

// The part of the staging memory for copies out that stays free of boxes. Such boxes may wait for a
// long kernel.
constexpr std::size_t kSlotsLeft = kStagingOutBytes / limits::kBulkChunkBytes / 2;

// The fixed part of a payload. parse_record() has checked its size.
template <typename T>
T head_of(const Call& call) {
  T payload;
  std::memcpy(&payload, call.payload().data(), sizeof payload);
  return payload;
}

// A driver copies only a single line of pageable memory at once. A box would wait for its stream,
// and every thread with calls would wait for it. So its bytes go through pinned memory.
CallOutcome copy_inline_box(Call& call, const CopyParts& copy, ByteView bytes) {
  BulkLanes* bulk = call.executor().bulk();
  if (bulk == nullptr) return CallOutcome::done(kErrorNotSupported);
  Executor& executor = call.executor();
  const std::byte* next = bulk->staging_out().next();
  const bool may =
      next == nullptr || executor.may_use(call, bulk->staging_out(), next, bytes.size());
  std::byte* slot = may ? bulk->out().take_slot(kSlotsLeft) : nullptr;
  if (slot == nullptr) return CallOutcome::held();
  std::memcpy(slot, bytes.data(), bytes.size());
  const int result = copy.in(slot, 0, bytes.size());
  const auto give_back = [bulk, slot](int) { bulk->out().give_slot(slot); };
  const int recorded =
      executor.completions().after(call.driver_context(), call.driver_stream(), give_back);
  if (recorded != 0) give_back(recorded);
  return CallOutcome::done(result != 0 ? result : recorded);
}

CallOutcome copy_inline(Call& call) {
  const CopyParts copy(call);
  if (copy.result() != 0) return CallOutcome::done(copy.result());
  // A graph would keep the pointer and read it after the payload is freed.
  if (is_capturing(call.driver(), call.driver_stream())) {
    return CallOutcome::done(kErrorCaptureUnsupported);
  }
  // A program that copies in mostly copies out afterwards.
  BulkLanes* bulk = call.executor().bulk();
  if (bulk != nullptr) call.executor().register_ahead(call, bulk->staging_out(), 0);
  // The driver copies pageable memory to its staging memory before the call returns (CUDA Driver
  // API, "API synchronization behavior", asynchronous copies).
  const ByteView bytes = call.payload().subspan(protocol::copy_payload_bytes(call.header()));
  if ((call.header().flags & protocol::kFlagBox) != 0) return copy_inline_box(call, copy, bytes);
  return CallOutcome::done(copy.in(bytes.data(), 0, bytes.size()));
}

CallOutcome copy_device(Call& call) {
  const CopyParts copy(call);
  return CallOutcome::done(copy.result() != 0 ? copy.result() : copy.by_device());
}

int memset_row(const DriverFunctions& driver, const MemsetPayload& set, void* stream) {
  switch (set.element_bytes) {
    case 1:
      return driver.cuMemsetD8Async(set.destination, static_cast<unsigned char>(set.value),
                                    set.width, stream);
    case 2:
      return driver.cuMemsetD16Async(set.destination, static_cast<unsigned short>(set.value),
                                     set.width, stream);
    default:
      return driver.cuMemsetD32Async(set.destination, set.value, set.width, stream);
  }
}

CallOutcome memset(Call& call) {
  const auto set = head_of<MemsetPayload>(call);
  const DriverFunctions& driver = call.driver();
  void* stream = call.driver_stream();
  if (set.height == 1) return CallOutcome::done(memset_row(driver, set, stream));
  switch (set.element_bytes) {
    case 1:
      return CallOutcome::done(driver.cuMemsetD2D8Async(set.destination, set.pitch,
                                                        static_cast<unsigned char>(set.value),
                                                        set.width, set.height, stream));
    case 2:
      return CallOutcome::done(driver.cuMemsetD2D16Async(set.destination, set.pitch,
                                                         static_cast<unsigned short>(set.value),
                                                         set.width, set.height, stream));
    default:
      return CallOutcome::done(driver.cuMemsetD2D32Async(set.destination, set.pitch, set.value,
                                                         set.width, set.height, stream));
  }
}

CallOutcome event_record(Call& call) {
  const HandleTable::Found event = call.handles().find(call.header().subject, HandleKind::kEvent);
  if (event.result != 0) return CallOutcome::done(event.result);
  const auto payload = head_of<EventPayload>(call);
  void* value = reinterpret_cast<void*>(event.value);
  if (payload.flags == 0) {
    return CallOutcome::done(call.driver().cuEventRecord(value, call.driver_stream()));
  }
  return CallOutcome::done(
      call.driver().cuEventRecordWithFlags(value, call.driver_stream(), payload.flags));
}

CallOutcome stream_wait(Call& call) {
  const HandleTable::Found event = call.handles().find(call.header().subject, HandleKind::kEvent);
  if (event.result != 0) return CallOutcome::done(event.result);
  return CallOutcome::done(call.driver().cuStreamWaitEvent(call.driver_stream(),
                                                           reinterpret_cast<void*>(event.value),
                                                           head_of<EventPayload>(call).flags));
}

}  // namespace

Handler hot_handler(Form form) noexcept {
  switch (form) {
    case Form::kCopyInline:
      return copy_inline;
    case Form::kCopyDevice:
      return copy_device;
    case Form::kMemset:
      return memset;
    case Form::kEventRecord:
      return event_record;
    case Form::kStreamWait:
      return stream_wait;
    case Form::kLaunch:  // Handlers::launch, which knows the kernels.
    case Form::kCopyIn:
    case Form::kCopyOut:
    case Form::kCall:
    case Form::kRaw:
      break;
  }
  return nullptr;
}

}  // namespace gpurun::server
