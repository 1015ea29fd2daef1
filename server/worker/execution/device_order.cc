// DeviceOrder: the barriers, and what contexts and captures have to know of a call.
#include "server/worker/execution/device_order.h"

#include "driver_abi/opcodes.h"
#include "server/driver/error_numbers.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

using protocol::Form;
using protocol::RecordHeader;

int DeviceOrder::before(const Call& call) {
  note_for_context(call);
  return barrier_.before(call.header(), call.driver_stream());
}

int DeviceOrder::before_copy_between(const RecordHeader& header) {
  context_streams_.given(header.context, nullptr, [&] { return header.context; });
  return barrier_.before(header, nullptr);
}

void DeviceOrder::forget(std::uint64_t context) {
  barrier_.forget(context);
  context_streams_.forget(context);
  std::erase_if(captures_, [&](const auto& each) { return each.second == context; });
}

bool DeviceOrder::context_is_done(std::uint64_t context) {
  return context_streams_.done(context, [this](void* stream) { return is_done(stream); });
}

// A query would end the stream's capture.
bool DeviceOrder::is_done(void* stream) const {
  return !is_capturing(driver_, stream) && driver_.cuStreamQuery(stream) != kErrorNotReady;
}

// A context waits for the work of its own streams, whichever context was current.
void DeviceOrder::note_for_context(const Call& call) {
  const RecordHeader& header = call.header();
  void* const stream = call.driver_stream();
  const auto home = [&] {
    const std::uint64_t of_stream = streams_.traits(header).context;
    return of_stream != 0 ? of_stream : header.context;
  };
  if (header.opcode == driver_abi::opcode::cuStreamDestroy_v2) {
    captures_.erase(stream);
    const auto done = [this](void* each) { return is_done(each); };
    if (context_streams_.destroyed(home(), stream, done)) keep_work(call, home(), stream);
    return;
  }
  if (may_enter_capture(header)) keep_work_before_capture(call, home());
  if (CallKinds::begins_capture(header)) captures_[stream] = home();
  if (header.opcode == driver_abi::opcode::cuStreamEndCapture) captures_.erase(stream);
  context_streams_.given(header.context, stream, home);
}

// A wait for an event of a capture makes the stream join that capture. The legacy stream never
// joins.
bool DeviceOrder::may_enter_capture(const RecordHeader& header) const {
  if (CallKinds::is_legacy(header)) return false;
  return CallKinds::begins_capture(header) ||
         (header.form == Form::kStreamWait && !captures_.empty());
}

// A stream cannot be queried while it captures. For a blocking stream the same is true of the
// legacy stream of `home`, its context.
void DeviceOrder::keep_work_before_capture(const Call& call, std::uint64_t home) {
  const bool blocking = streams_.traits(call.header()).blocking;
  void* const legacy = reinterpret_cast<void*>(protocol::kStreamLegacy);
  for (void* const stream : {call.driver_stream(), static_cast<void*>(nullptr), legacy}) {
    if (stream != call.driver_stream() && !blocking) continue;
    if (context_streams_.has_given(home, stream)) keep_work(call, home, stream);
  }
}

// From now on a side stream of the worker also waits for the work of `stream` in the context
// `home`.
void DeviceOrder::keep_work(const Call& call, std::uint64_t home, void* stream) {
  const HandleTable::Found context = handles_.find(home, HandleKind::kContext);
  if (context.result != 0) return;  // The context has ended together with its work.
  if (enter_context(driver_, owner_, reinterpret_cast<void*>(context.value)) != 0) return;
  // The call itself reports a failure.
  if (!is_done(stream) && barrier_.outlive(home, stream) == 0) {
    void* const side = barrier_.side_of(home);
    if (side != nullptr) context_streams_.given(home, side, [home] { return home; });
  }
  (void)enter_context(driver_, owner_, call.driver_context());
}

bool DeviceOrder::is_behind_complete_work(const RecordHeader& header) {
  forget_contexts();
  const HandleTable::Found context = handles_.find(header.context, HandleKind::kContext);
  if (context.result != 0 || !context_is_known(header.context)) return false;
  if (enter_context(driver_, owner_, reinterpret_cast<void*>(context.value)) != 0) return false;
  return context_is_done(header.context);
}

int DeviceOrder::mark_behind_context(const RecordHeader& header) {
  using State = ContextStreams::State;
  forget_contexts();
  if (!context_streams_.may_have_work(header.context)) return 0;
  const HandleTable::Found context = handles_.find(header.context, HandleKind::kContext);
  if (context.result != 0) return 0;  // The context has ended together with its work.
  const int entered = enter_context(driver_, owner_, reinterpret_cast<void*>(context.value));
  if (entered != 0) return entered;
  const std::vector<void*> busy = context_streams_.busy(header.context, [this](void* stream) {
    if (is_capturing(driver_, stream)) return State::kCapturing;
    return driver_.cuStreamQuery(stream) == kErrorNotReady ? State::kBusy : State::kDone;
  });
  return busy.empty() ? 0 : barrier_.after_streams(header, busy);
}

int DeviceOrder::after(const Call& call) {
  using Owed = DeviceBarrier::Owed;
  const RecordHeader& header = call.header();
  if (kinds_.is_early_event_wait(header)) {
    const int result = barrier_.after_event(header, reinterpret_cast<void*>(call.scratch[0]));
    context_streams_.given(header.context, barrier_.side_of(header.context),
                           [&] { return header.context; });
    return result;
  }
  const Owed owed = kinds_.is_early_wait(header) ? Owed::kToContext : Owed::kToLane;
  return barrier_.after(header, call.driver_stream(), owed);
}

}  // namespace gpurun::server
