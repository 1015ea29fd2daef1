// Executor: how one call is run, in its context and stream, behind its barrier, by its handler.
#include <cstring>

#include "base/planted_flaw.h"
#include "driver_abi/opcodes.h"
#include "server/worker/execution/copy_calls.h"
#include "server/worker/execution/executor_state.h"
#include "server/worker/execution/hot_calls.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

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
    const int result = order.before(call);
    if (result == 0) stall.note_on_device(call);
    return result;
  }
  const bool between =
      header.order == Order::kContext && (header.flags & protocol::kFlagBarrier) != 0;
  return between && header.context != 0 ? order.before_copy_between(header) : 0;
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
  if (header.opcode == driver_abi::opcode::cuGreenCtxCreate) order.wait_for_more();
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
  if (header.order != Order::kOrderedHost) order.forget_contexts();
  if (const int result = prepare(call); result != 0) {
    if (options.handlers.not_run != nullptr) options.handlers.not_run(call, result);
    return CallOutcome::done(result);
  }
  planted_flaw("worker");
  const CallOutcome outcome = run_handler(call);
  const bool issued = outcome.kind != CallOutcome::Kind::kHeld && outcome.result == 0;
  if (issued && header.order == Order::kStream && (header.flags & protocol::kFlagBarrier) != 0) {
    const int result = order.after(call);
    if (result != 0 && outcome.kind == CallOutcome::Kind::kDone) return CallOutcome::done(result);
  }
  return outcome;
}

}  // namespace gpurun::server
