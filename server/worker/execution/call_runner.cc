// CallRunner: the steps from a call's record to its handler, and what follows it on the device.
#include "server/worker/execution/call_runner.h"

#include "base/injected_fault.h"
#include "driver_abi/opcodes.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

using protocol::Form;
using protocol::Order;
using protocol::RecordHeader;

// Gives the thread and the call the state that handlers expect. Returns 0 or the CUresult.
int CallRunner::prepare(Call& call) {
  const RecordHeader& header = call.header_;
  call.driver_context_ = nullptr;
  if (header.context != 0) {
    const HandleTable::Found found = parts_.handles.find(header.context, HandleKind::kContext);
    if (found.result != 0) return found.result;
    call.driver_context_ = reinterpret_cast<void*>(found.value);
  }
  const int entered = enter_context(parts_.options.driver, parts_.owner, call.driver_context_);
  if (entered != 0) return entered;
  // The call has its place in its stream's queue. The driver needs only the event, and another
  // thread may have ended the stream.
  if (parts_.kinds.is_early_event_wait(header)) return 0;
  if (header.order == Order::kStream) {
    const HandleTable::Found found = call.resolve_stream(header.stream);
    // The driver need not learn of this end: Dispatch forgets a stream that was never made.
    if (found.result != 0 && header.opcode == driver_abi::opcode::cuStreamDestroy_v2) return 0;
    if (found.result != 0) return found.result;
    call.driver_stream_ = reinterpret_cast<void*>(found.value);
    // A query adds nothing to its stream, so it need not wait for another lane's barrier.
    if (parts_.kinds.is_query(call)) return 0;
    const int result = parts_.order.before(call);
    if (result == 0) parts_.stall.note_on_device(call);
    return result;
  }
  const bool between =
      header.order == Order::kContext && (header.flags & protocol::kFlagBarrier) != 0;
  return between && header.context != 0 ? parts_.order.before_copy_between(header) : 0;
}

// Runs the call if the driver's queue for the stream has room and would not block the executor.
CallOutcome CallRunner::run_hot(Call& call, Handler handler) {
  if (!parts_.bound.room(call.driver_context_, call.driver_stream_)) return CallOutcome::held();
  const CallOutcome outcome = handler(call);
  if (outcome.kind != CallOutcome::Kind::kDone || outcome.result != 0) return outcome;
  const auto capturing = [&] { return is_capturing(parts_.options.driver, call.driver_stream_); };
  parts_.bound.added(call.driver_context_, call.driver_stream_, capturing);
  if (call.header_.form == Form::kEventRecord) parts_.replies.note_record(call);
  return outcome;
}

CallOutcome CallRunner::run_handler(Call& call) {
  const RecordHeader& header = call.header_;
  if (header.form == Form::kCopyIn) return parts_.forms.copy_in(call);
  if (header.form == Form::kCopyOut) return parts_.forms.copy_out(call);
  Handler handler = nullptr;
  if (CallKinds::is_hot(header.form)) {
    // Only the form decides, because parse_record() has checked that form's payload.
    if (header.bulk != 0) return CallOutcome::done(kErrorInvalidValue);
    const bool launch = header.form == Form::kLaunch;
    handler = launch ? parts_.options.handlers.launch : parts_.forms.hot(header.form);
    return handler == nullptr ? CallOutcome::done(kErrorNotSupported) : run_hot(call, handler);
  }
  if (header.opcode < Handlers::kOpcodes)
    handler = parts_.options.handlers.by_opcode[header.opcode];
  if (handler == nullptr) handler = parts_.options.handlers.generic;
  if (handler == nullptr) return CallOutcome::done(kErrorNotSupported);
  bool here = false;
  const int taken = parts_.call_bulk.take(call, &here);
  if (taken != 0) return CallOutcome::done(taken);
  if (!here) return CallOutcome::held();
  // A wait for a primary context waits for its green contexts, too (manual, green contexts).
  if (header.opcode == driver_abi::opcode::cuGreenCtxCreate) parts_.order.wait_for_more();
  if (CallKinds::begins_capture(header)) note_capture();
  if (header.opcode < Handlers::kOpcodes && parts_.options.handlers.needs_waits[header.opcode]) {
    parts_.skipped_waits.forbid();
  }
  const CallOutcome outcome = handler(call);
  // Generated calls may have made another context current.
  if (!keeps_context(call)) forget_thread_context();
  return outcome;
}

// Waits, queries and launches of graphs.
bool CallRunner::keeps_context(const Call& call) const {
  const std::uint16_t code = call.header_.opcode;
  const Handlers& of = parts_.options.handlers;
  return code != 0 && (code == of.stream_synchronize || code == of.event_synchronize ||
                       code == of.stream_query || code == of.event_query ||
                       code == driver_abi::opcode::cuCtxSynchronize ||
                       code == driver_abi::opcode::cuGraphLaunch);
}

// Calls that take no longer than waking a helper, or that settle complete work by themselves.
bool CallRunner::is_short(const Call& call) const {
  const std::uint16_t code = call.header_.opcode;
  return CallKinds::is_hot(call.header_.form) || parts_.kinds.is_query(call) ||
         code == parts_.options.handlers.stream_synchronize ||
         code == parts_.options.handlers.event_synchronize ||
         code == driver_abi::opcode::cuCtxSynchronize;
}

CallOutcome CallRunner::run(Call& call) {
  // Gathered bytes of copies wait for more copies, or for calls that take no time.
  if (call.header_.form != Form::kCopyOut) parts_.replies.send_gathered();
  if (!is_short(call)) {
    parts_.completions.attend();
    parts_.outbox.send();
  }
  if (statistics_ == nullptr) return run_uncounted(call);
  statistics_->launches_belong_to(call.header_.sequence);
  const std::uint64_t begin = StatisticsCounter::now();
  const CallOutcome outcome = run_uncounted(call);
  statistics_->launches_belong_to(0);
  StatisticsCounter::Ran ran{call.decoded_ns_, begin, StatisticsCounter::now()};
  ran.over = outcome.kind != CallOutcome::Kind::kHeld;
  ran.failed = ran.over && outcome.result != 0;
  const std::uint64_t beside = CallBulk::bytes(call);
  const bool out = call.header_.form == Form::kCopyOut;
  ran.bytes_in = call.header_.bytes + (out ? 0 : beside);
  ran.bytes_out = out ? beside : 0;
  statistics_->ran(call.header_, ran);
  return outcome;
}

int CallRunner::run_rest(Call& call, int (*rest)(Call&)) {
  if (statistics_ == nullptr) return rest(call);
  statistics_->launches_belong_to(call.header_.sequence);
  const std::uint64_t begin = StatisticsCounter::now();
  const int result = rest(call);
  statistics_->launches_belong_to(0);
  statistics_->waited(call.header_, begin, StatisticsCounter::now());
  return result;
}

int CallRunner::run_parked(Call& call, int (*rest)(Call&)) {
  const RecordHeader header = call.header_;
  call.header_.order = Order::kLane;  // Only the context is needed here.
  const int result = prepare(call);
  call.header_ = header;
  return result != 0 ? result : run_rest(call, rest);
}

CallOutcome CallRunner::run_uncounted(Call& call) {
  const RecordHeader& header = call.header_;
  if (header.order != Order::kOrderedHost) parts_.order.forget_contexts();
  if (const int result = prepare(call); result != 0) {
    if (parts_.options.handlers.not_run != nullptr) parts_.options.handlers.not_run(call, result);
    return CallOutcome::done(result);
  }
  injected_fault("worker");
  const CallOutcome outcome = run_handler(call);
  const bool issued = outcome.kind != CallOutcome::Kind::kHeld && outcome.result == 0;
  if (issued && header.order == Order::kStream && (header.flags & protocol::kFlagBarrier) != 0) {
    const int result = parts_.order.after(call);
    if (result != 0 && outcome.kind == CallOutcome::Kind::kDone) return CallOutcome::done(result);
  }
  return outcome;
}

}  // namespace gpurun::server
