// Executor: how one call is run, in its context and stream, behind its barrier, by its handler.
#include <cstring>

#include "base/planted_flaw.h"
#include "driver_abi/opcodes.h"
#include "server/worker/execution/copy_calls.h"
#include "server/worker/execution/executor_state.h"
#include "server/worker/execution/hot_calls.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

// A query would end the stream's capture.
bool ExecutorState::stream_is_done(void* stream) const {
  return !is_capturing(options.driver, stream) &&
         options.driver.cuStreamQuery(stream) != kErrorNotReady;
}

// A context waits for the work of its own streams, whichever context was current.
void ExecutorState::note_for_context(const Call& call) {
  const RecordHeader& header = call.header_;
  void* const stream = call.driver_stream_;
  const auto home = [&] {
    const std::uint64_t of_stream = streams.traits(header).context;
    return of_stream != 0 ? of_stream : header.context;
  };
  if (header.opcode == driver_abi::opcode::cuStreamDestroy_v2) {
    captures.erase(stream);
    const auto is_done = [this](void* each) { return stream_is_done(each); };
    if (context_streams.destroyed(home(), stream, is_done)) keep_work(call, home(), stream);
    return;
  }
  if (may_enter_capture(header)) keep_work_before_capture(call, home());
  if (CallKinds::begins_capture(header)) captures[stream] = home();
  if (header.opcode == driver_abi::opcode::cuStreamEndCapture) captures.erase(stream);
  context_streams.given(header.context, stream, home);
}

// A wait for an event of a capture makes the stream join that capture. The legacy stream never
// joins.
bool ExecutorState::may_enter_capture(const RecordHeader& header) const {
  if (CallKinds::is_legacy(header)) return false;
  return CallKinds::begins_capture(header) ||
         (header.form == Form::kStreamWait && !captures.empty());
}

// A stream cannot be queried while it captures. For a blocking stream the same is true of the
// legacy stream of `home`, its context.
void ExecutorState::keep_work_before_capture(const Call& call, std::uint64_t home) {
  const bool blocking = streams.traits(call.header_).blocking;
  void* const legacy = reinterpret_cast<void*>(protocol::kStreamLegacy);
  for (void* const stream : {call.driver_stream_, static_cast<void*>(nullptr), legacy}) {
    if (stream != call.driver_stream_ && !blocking) continue;
    if (context_streams.has_given(home, stream)) keep_work(call, home, stream);
  }
}

// From now on a side stream of the worker also waits for the work of `stream` in the context
// `home`.
void ExecutorState::keep_work(const Call& call, std::uint64_t home, void* stream) {
  const HandleTable::Found context = handles.find(home, HandleKind::kContext);
  if (context.result != 0) return;  // The context has ended together with its work.
  if (enter_context(options.driver, id, reinterpret_cast<void*>(context.value)) != 0) return;
  // The call itself reports a failure.
  if (!stream_is_done(stream) && barrier.outlive(home, stream) == 0) {
    void* const side = barrier.side_of(home);
    if (side != nullptr) context_streams.given(home, side, [home] { return home; });
  }
  (void)enter_context(options.driver, id, call.driver_context_);
}

// Puts a barrier behind all unfinished work of the context. Capturing streams get none, because
// keep_work_before_capture() has kept what they had before.
int ExecutorState::mark_behind_context(const RecordHeader& header) {
  using State = ContextStreams::State;
  forget_contexts();
  if (!context_streams.may_have_work(header.context)) return 0;
  const HandleTable::Found context = handles.find(header.context, HandleKind::kContext);
  if (context.result != 0) return 0;  // The context has ended together with its work.
  const int entered = enter_context(options.driver, id, reinterpret_cast<void*>(context.value));
  if (entered != 0) return entered;
  const std::vector<void*> busy = context_streams.busy(header.context, [this](void* stream) {
    if (is_capturing(options.driver, stream)) return State::kCapturing;
    return options.driver.cuStreamQuery(stream) == kErrorNotReady ? State::kBusy : State::kDone;
  });
  return busy.empty() ? 0 : barrier.after_streams(header, busy);
}

// Gives the thread and the call the state that handlers expect. Returns 0 or the CUresult.
int ExecutorState::prepare(Call& call) {
  const RecordHeader& header = call.header_;
  call.driver_context_ = nullptr;
  if (header.context != 0) {
    const HandleTable::Found found = handles.find(header.context, HandleKind::kContext);
    if (found.result != 0) return found.result;
    call.driver_context_ = reinterpret_cast<void*>(found.value);
  }
  const int entered = enter_context(options.driver, id, call.driver_context_);
  if (entered != 0) return entered;
  // The call has its place in its stream's queue. The driver needs only the event, and another
  // thread may have ended the stream.
  if (kinds.is_early_event_wait(header)) return 0;
  if (header.order == Order::kStream) {
    const HandleTable::Found found = call.resolve_stream(header.stream);
    // The driver need not learn of this end: Dispatch forgets a stream that was never made.
    if (found.result != 0 && header.opcode == driver_abi::opcode::cuStreamDestroy_v2) return 0;
    if (found.result != 0) return found.result;
    call.driver_stream_ = reinterpret_cast<void*>(found.value);
    // A query adds nothing to its stream, so it need not wait for another lane's barrier.
    if (kinds.is_query(call)) return 0;
    note_for_context(call);
    const int result = barrier.before(header, call.driver_stream_);
    if (result == 0) note_on_device(call);
    return result;
  }
  // A copy between contexts. The driver puts it behind the legacy stream of the current one
  // (manual, cuMemcpyPeer).
  const bool between =
      header.order == Order::kContext && (header.flags & protocol::kFlagBarrier) != 0;
  if (!between || header.context == 0) return 0;
  context_streams.given(header.context, nullptr, [&] { return header.context; });
  return barrier.before(header, nullptr);
}

// Runs the call if the driver's queue for the stream has room and would not block the executor.
CallOutcome ExecutorState::run_hot(Call& call, Handler handler) {
  if (!bound.room(call.driver_context_, call.driver_stream_)) return CallOutcome::held();
  const CallOutcome outcome = handler(call);
  if (outcome.kind != CallOutcome::Kind::kDone || outcome.result != 0) return outcome;
  const auto capturing = [&] { return is_capturing(options.driver, call.driver_stream_); };
  bound.added(call.driver_context_, call.driver_stream_, capturing);
  if (call.header_.form == Form::kEventRecord) replies.note_record(call);
  return outcome;
}

CallOutcome ExecutorState::run_handler(Call& call) {
  const RecordHeader& header = call.header_;
  if (header.form == Form::kCopyIn) return run_copy_in(call);
  if (header.form == Form::kCopyOut) return run_copy_out(call);
  Handler handler = nullptr;
  if (CallKinds::is_hot(header.form)) {
    // Only the form decides, because parse_record() has checked that form's payload.
    if (header.bulk != 0) return CallOutcome::done(kErrorInvalidValue);
    const bool launch = header.form == Form::kLaunch;
    handler = launch ? options.handlers.launch : hot_handler(header.form);
    return handler == nullptr ? CallOutcome::done(kErrorNotSupported) : run_hot(call, handler);
  }
  if (header.opcode < Handlers::kOpcodes) handler = options.handlers.by_opcode[header.opcode];
  if (handler == nullptr) handler = options.handlers.generic;
  if (handler == nullptr) return CallOutcome::done(kErrorNotSupported);
  bool here = false;
  const int taken = call_bulk.take(call, &here);
  if (taken != 0) return CallOutcome::done(taken);
  if (!here) return CallOutcome::held();
  // A wait for a primary context waits for its green contexts, too (manual, green contexts).
  if (header.opcode == driver_abi::opcode::cuGreenCtxCreate) context_streams.give_up();
  const CallOutcome outcome = handler(call);
  forget_thread_context();  // Generated calls may have made another context current.
  return outcome;
}

// Calls that take no longer than waking a helper, or that settle complete work by themselves.
bool ExecutorState::is_short(const Call& call) const {
  const std::uint16_t code = call.header_.opcode;
  return CallKinds::is_hot(call.header_.form) || kinds.is_query(call) ||
         code == options.handlers.stream_synchronize ||
         code == options.handlers.event_synchronize || code == driver_abi::opcode::cuCtxSynchronize;
}

CallOutcome ExecutorState::run(Call& call) {
  // Gathered bytes of copies wait for more copies, or for calls that take no time.
  if (call.header_.form != Form::kCopyOut) replies.send_gathered();
  if (!is_short(call)) {
    completions.attend();
    outbox.send();
  }
  if (observer == nullptr) return run_unobserved(call);
  observer->launches_belong_to(call.header_.sequence);
  const std::uint64_t begin = Observer::now();
  const CallOutcome outcome = run_unobserved(call);
  observer->launches_belong_to(0);
  Observer::Ran ran{call.decoded_ns_, begin, Observer::now()};
  ran.over = outcome.kind != CallOutcome::Kind::kHeld;
  ran.failed = ran.over && outcome.result != 0;
  const std::uint64_t beside = CallBulk::bytes(call);
  const bool out = call.header_.form == Form::kCopyOut;
  ran.bytes_in = call.header_.bytes + (out ? 0 : beside);
  ran.bytes_out = out ? beside : 0;
  observer->ran(call.header_, ran);
  return outcome;
}

// Runs the rest of a parked call.
int ExecutorState::run_rest(Call& call, int (*rest)(Call&)) {
  if (observer == nullptr) return rest(call);
  observer->launches_belong_to(call.header_.sequence);
  const std::uint64_t begin = Observer::now();
  const int result = rest(call);
  observer->launches_belong_to(0);
  observer->waited(call.header_, begin, Observer::now());
  return result;
}

CallOutcome ExecutorState::run_unobserved(Call& call) {
  const RecordHeader& header = call.header_;
  if (header.order != Order::kOrderedHost) forget_contexts();
  if (const int result = prepare(call); result != 0) {
    if (options.handlers.not_run != nullptr) options.handlers.not_run(call, result);
    return CallOutcome::done(result);
  }
  planted_flaw("worker");
  const CallOutcome outcome = run_handler(call);
  const bool issued = outcome.kind != CallOutcome::Kind::kHeld && outcome.result == 0;
  if (issued && header.order == Order::kStream && (header.flags & protocol::kFlagBarrier) != 0) {
    const int result = follow_with_barrier(call);
    if (result != 0 && outcome.kind == CallOutcome::Kind::kDone) return CallOutcome::done(result);
  }
  return outcome;
}

int ExecutorState::follow_with_barrier(const Call& call) {
  using Owed = DeviceBarrier::Owed;
  const RecordHeader& header = call.header_;
  if (kinds.is_early_event_wait(header)) {
    const int result = barrier.after_event(header, reinterpret_cast<void*>(call.scratch[0]));
    context_streams.given(header.context, barrier.side_of(header.context),
                          [&] { return header.context; });
    return result;
  }
  const Owed owed = kinds.is_early_wait(header) ? Owed::kToContext : Owed::kToLane;
  return barrier.after(header, call.driver_stream_, owed);
}

}  // namespace gpurun::server
