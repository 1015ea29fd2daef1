// StallWarning: remembers the first stalled call of each kind, and looks at it again later.
#include "server/worker/execution/stall_warning.h"

#include <algorithm>
#include <string>

#include "server/driver/error_numbers.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {
namespace {

using Clock = std::chrono::steady_clock;
using protocol::Order;
using protocol::RecordHeader;

bool is_free(const RecordHeader& header) { return header.order == Order::kOrderedHost; }

}  // namespace

// True if `later` would also wait on a local device for the work before `early`, by their streams.
bool StallWarning::cuda_orders(const RecordHeader& later, const RecordHeader& early) {
  if (later.order == Order::kLane) return false;
  if (later.order != Order::kStream) return (later.flags & protocol::kFlagPassesStreams) == 0;
  if (is_free(early)) return false;  // A free has no stream.
  const bool later_is_legacy = CallKinds::is_legacy(later);
  const bool early_is_legacy = CallKinds::is_legacy(early);
  if (later_is_legacy && early_is_legacy) return later.context == early.context;
  if (!later_is_legacy && !early_is_legacy) {
    return later.stream == early.stream && later.stream != protocol::kStreamPerThread;
  }
  const RecordHeader& named = later_is_legacy ? early : later;
  const RecordHeader& legacy = later_is_legacy ? later : early;
  const IssueQueue::StreamTraits of = parts_.streams.traits(named);
  return of.blocking && (of.context == 0 ? named.context : of.context) == legacy.context;
}

bool StallWarning::may_note_on_device(const RecordHeader& header) {
  const DeviceBarrier& barrier = parts_.order.barrier();
  const DeviceBarrier::Pending* const early = barrier.pending();
  if (early == nullptr || early->call.lane == header.lane || warned_) return false;
  if (parts_.options.stall_warning_after.count() == 0 || early->event == barrier.kept())
    return false;
  return !on_device_.has_value() || !lasts(*on_device_);
}

void StallWarning::keep_on_device(const RecordHeader& header) {
  DeviceBarrier& barrier = parts_.order.barrier();
  const DeviceBarrier::Pending& early = *barrier.pending();
  barrier.keep(early.event);
  on_device_ = Stall{header, early.call, early.event, Clock::now()};
  parts_.inbox.wake_at(on_device_->since + parts_.options.stall_warning_after);
}

void StallWarning::note_on_device(const Call& call) {
  if (!may_note_on_device(call.header()) ||
      is_capturing(parts_.options.driver, call.driver_stream())) {
    return;
  }
  const DeviceBarrier::Pending& early = *parts_.order.barrier().pending();
  const bool own_work =  // The call's own stream has the work that the free waits for.
      std::find(early.streams.begin(), early.streams.end(), call.driver_stream()) !=
      early.streams.end();
  const bool ordered = own_work || cuda_orders(call.header(), early.call);
  // The query of a stream's traits may have made another context current.
  (void)enter_context(parts_.options.driver, parts_.owner, call.driver_context());
  if (!ordered) keep_on_device(call.header());
}

void StallWarning::note_query(const RecordHeader& header) {
  if (!may_note_on_device(header)) return;
  if (is_free(parts_.order.barrier().pending()->call)) keep_on_device(header);
}

void StallWarning::note_in_queue(const RecordHeader& header) {
  const IssueQueue& queue = parts_.queued.queue();
  const IssueQueue::Item* const item = queue.barrier();
  if (item == nullptr || warned_ || parts_.options.stall_warning_after.count() == 0) return;
  const RecordHeader& early = QueuedCalls::call_of(item).header();
  if (early.lane == header.lane || !parts_.queued.is_early(early)) return;
  // It may wait for this very stream.
  if (is_free(early) && queue.has_queue_of(header)) return;
  if (cuda_orders(header, early) || (in_queue_.has_value() && lasts(*in_queue_))) return;
  in_queue_ = Stall{header, early, nullptr, Clock::now()};
  parts_.inbox.wake_at(in_queue_->since + parts_.options.stall_warning_after);
}

bool StallWarning::lasts(const Stall& stall) {
  if (stall.event == nullptr) {
    const IssueQueue& queue = parts_.queued.queue();
    return is_free(stall.early) ? queue.has_mark(stall.early.sequence)
                                : queue.has(stall.early.sequence);
  }
  return parts_.order.barrier().kept() == stall.event &&
         parts_.options.driver.cuEventQuery(stall.event) == kErrorNotReady;
}

void StallWarning::look() {
  parts_.order.forget_contexts();
  for (std::optional<Stall>* const each : {&on_device_, &in_queue_}) {
    if (!each->has_value() || warned_) continue;
    const Stall stall = **each;
    const Clock::time_point when = stall.since + parts_.options.stall_warning_after;
    if (Clock::now() < when) {
      parts_.inbox.wake_at(when);
      continue;
    }
    const auto context = parts_.handles.find(stall.early.context, HandleKind::kContext);
    const bool can_ask =
        context.result == 0 && enter_context(parts_.options.driver, parts_.owner,
                                             reinterpret_cast<void*>(context.value)) == 0;
    each->reset();
    if (!can_ask || !lasts(stall)) continue;
    warned_ = true;
    warn(stall);
  }
}

void StallWarning::warn(const Stall& stall) {
  const std::string kind = is_free(stall.early) ? "free"
                           : parts_.kinds.is_early_wait(stall.early)
                               ? "wait for a stream or an event"
                               : "synchronous copy to the device";
  const std::string words =
      "of one thread has waited for " + std::to_string(parts_.options.stall_warning_after.count()) +
      " ms behind a " + kind +
      " of another thread, which was answered early and "
      "waits for unfinished work. If that work waits for this call, neither ends: "
      "GPURUN_SYNC=1 makes such calls wait before they return, as on a local GPU";
  protocol::ReplyHeader item;
  item.kind = protocol::ReplyKind::kOutput;
  item.flags = protocol::kReplyFlagErrors;
  item.opcode = stall.call.opcode;
  item.lane = stall.call.lane;
  item.call_sequence = stall.call.sequence;
  item.context = stall.call.context;
  item.subject = 1;  // The text comes from the worker itself.
  (void)parts_.outbox.post_later(item, byte_view(words.data(), words.size()));
}

}  // namespace gpurun::server
