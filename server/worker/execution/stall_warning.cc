// Stall warning: calls that wait for long behind another thread's call that was answered early (a
// copy, a free or a wait).
//
// That thread may have notified this one, so nothing may pass the early call. But the worker cannot
// see whether it has. If it has not, and the work before the early call waits for the stalled call,
// both calls deadlock (docs/adr/0016, 0038). So after a while the program gets one warning with the
// remedy.
#include <algorithm>
#include <string>

#include "server/worker/execution/executor_state.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {
namespace {

using Clock = std::chrono::steady_clock;

bool is_free(const RecordHeader& header) { return header.order == Order::kOrderedHost; }

}  // namespace

// True if `later` would also wait on a local device for the work before `copy`, by their streams.
bool ExecutorState::cuda_orders(const RecordHeader& later, const RecordHeader& copy) {
  if (later.order == Order::kLane) return false;
  if (later.order != Order::kStream) return (later.flags & protocol::kFlagPassesStreams) == 0;
  if (is_free(copy)) return false;  // A free has no stream.
  if (CallKinds::is_legacy(later) && CallKinds::is_legacy(copy))
    return later.context == copy.context;
  if (!CallKinds::is_legacy(later) && !CallKinds::is_legacy(copy)) {
    return later.stream == copy.stream && later.stream != protocol::kStreamPerThread;
  }
  const RecordHeader& named = CallKinds::is_legacy(later) ? copy : later;
  const RecordHeader& legacy = CallKinds::is_legacy(later) ? later : copy;
  const IssueQueue::StreamTraits of = streams.traits(named);
  return of.blocking && (of.context == 0 ? named.context : of.context) == legacy.context;
}

bool ExecutorState::may_note_on_device(const RecordHeader& header) {
  const DeviceBarrier::Pending* const copy = order.barrier().pending();
  if (copy == nullptr || copy->call.lane == header.lane || told_of_standing) return false;
  if (options.standing_after.count() == 0 || copy->event == order.barrier().kept()) return false;
  return !on_device.has_value() || !still_stands(*on_device);
}

void ExecutorState::keep_on_device(const RecordHeader& header) {
  const DeviceBarrier::Pending& copy = *order.barrier().pending();
  order.barrier().keep(copy.event);
  on_device = Standing{header, copy.call, copy.event, Clock::now()};
  inbox.wake_at(on_device->since + options.standing_after);
}

// `call` is about to be issued behind the order.barrier().
void ExecutorState::note_on_device(const Call& call) {
  if (!may_note_on_device(call.header_) || is_capturing(options.driver, call.driver_stream_)) {
    return;
  }
  const DeviceBarrier::Pending& copy = *order.barrier().pending();
  const bool own_work =  // The call's own stream has the work that the free waits for.
      std::find(copy.streams.begin(), copy.streams.end(), call.driver_stream_) !=
      copy.streams.end();
  const bool ordered = own_work || cuda_orders(call.header_, copy.call);
  // The query of a stream's traits may have made another context current.
  (void)enter_context(options.driver, id, call.driver_context_);
  if (!ordered) keep_on_device(call.header_);
}

// A query waits behind a free of another lane.
void ExecutorState::note_question(const RecordHeader& header) {
  if (may_note_on_device(header) && is_free(order.barrier().pending()->call))
    keep_on_device(header);
}

// `header` is about to be queued.
void ExecutorState::note_in_queue(const RecordHeader& header) {
  const IssueQueue::Item* const item = queued.queue().barrier();
  if (item == nullptr || told_of_standing || options.standing_after.count() == 0) return;
  const RecordHeader& copy = QueuedCalls::call_of(item).header_;
  if (copy.lane == header.lane || !queued.is_early(copy)) return;
  if (is_free(copy) && queued.queue().has_queue_of(header))
    return;  // It may wait for this very stream.
  if (cuda_orders(header, copy) || (in_queue.has_value() && still_stands(*in_queue))) return;
  in_queue = Standing{header, copy, nullptr, Clock::now()};
  inbox.wake_at(in_queue->since + options.standing_after);
}

bool ExecutorState::still_stands(const Standing& standing) {
  if (standing.event == nullptr) {
    return is_free(standing.copy) ? queued.queue().has_mark(standing.copy.sequence)
                                  : queued.queue().has(standing.copy.sequence);
  }
  return order.barrier().kept() == standing.event &&
         options.driver.cuEventQuery(standing.event) == kErrorNotReady;
}

// Runs on the thread of held queues, at the time that inbox.wake_at() set.
void ExecutorState::tell_standing() {
  order.forget_contexts();
  for (std::optional<Standing>* const each : {&on_device, &in_queue}) {
    if (!each->has_value() || told_of_standing) continue;
    const Standing standing = **each;
    const Clock::time_point when = standing.since + options.standing_after;
    if (Clock::now() < when) {
      inbox.wake_at(when);
      continue;
    }
    const auto context = handles.find(standing.copy.context, HandleKind::kContext);
    const bool can_ask =
        context.result == 0 &&
        enter_context(options.driver, id, reinterpret_cast<void*>(context.value)) == 0;
    each->reset();
    if (!can_ask || !still_stands(standing)) continue;
    told_of_standing = true;
    const std::string kind = is_free(standing.copy) ? "free"
                             : kinds.is_early_wait(standing.copy)
                                 ? "wait for a stream or an event"
                                 : "synchronous copy to the device";
    const std::string words =
        "of one thread has waited for " + std::to_string(options.standing_after.count()) +
        " ms behind a " + kind +
        " of another thread, which was answered early and "
        "waits for unfinished work. If that work waits for this call, neither ends: "
        "GPURUN_SYNC=1 makes such calls wait before they return, as on a local GPU";
    protocol::ReplyHeader item;
    item.kind = protocol::ReplyKind::kOutput;
    item.flags = protocol::kReplyFlagErrors;
    item.opcode = standing.call.opcode;
    item.lane = standing.call.lane;
    item.call_sequence = standing.call.sequence;
    item.context = standing.call.context;
    item.subject = 1;  // The text comes from the worker itself.
    (void)outbox.post_later(item, byte_view(words.data(), words.size()));
  }
}

}  // namespace gpurun::server
