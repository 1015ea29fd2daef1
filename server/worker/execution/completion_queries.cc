// Completion queries: whether a stream or an event is done, and the time between two events.
//
// A query waits only where a local driver would have waited already. Work that is still queued is
// not done. A call that was answered early is waited for by the lane that was answered. The queries
// of every lane wait for an early answered wait (docs/adr/0033, 0036) and for a free (0038). Only
// queries show the end of such a call, and the lane that was answered may have notified the others.
// Calls that end objects which work on the device may need wait in the same way.
#include <array>
#include <utility>

#include "server/worker/execution/executor_state.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

// Returns the events behind calls that were answered early and may still need what this call ends.
// A free that is awaited is answered behind its own mark.
DeviceOrder::OwedEvents ExecutorState::needed_still(const RecordHeader& header) {
  const bool marked =
      header.order == Order::kOrderedHost && (header.flags & protocol::kFlagBarrier) != 0;
  if (marked && (header.flags & protocol::kFlagFence) != 0) {
    return order.owed_to(header.lane, header.context, header.sequence + 1);
  }
  if (!kinds.ends_object(header)) return {};
  return order.owed_to(header.lane, 0, header.sequence);
}

void ExecutorState::ask(std::unique_ptr<Call> call) {
  if (!queued.push_behind_early(call)) answer_question(std::move(call));
}

// True if some of what the query is about has not been issued.
bool ExecutorState::asks_about_queued(const Call& call) const {
  const RecordHeader& header = call.header_;
  if (header.opcode == options.handlers.event_query)
    return queued.queue().has_writer_of(header.subject);
  if (header.opcode == options.handlers.event_elapsed_time) {
    const std::array<std::uint64_t, 2> two = options.handlers.events_of_elapsed_time(call);
    return queued.queue().has_writer_of(two[0]) || queued.queue().has_writer_of(two[1]);
  }
  return CallKinds::is_legacy(header) ? queued.queue().has_legacy_work(header.context)
                                      : queued.queue().has_queue_of(header);
}

void ExecutorState::answer_question(std::unique_ptr<Call> call) {
  if (asks_about_queued(*call)) return replies.answer(*call, kErrorNotReady);
  const RecordHeader& header = call->header_;
  const bool of_any = header.opcode == options.handlers.event_elapsed_time;
  OwedEvents owed = order.owed_to(header.lane, of_any ? 0 : header.context, header.sequence);
  if (!owed.empty()) {
    stall.note_query(header);
    return ask_behind(Call::keep(std::move(*call)), std::move(owed));
  }
  ask_the_driver(*call);
}

void ExecutorState::ask_the_driver(Call& call) {
  const CallOutcome outcome = runner.run(call);
  replies.answer(call, outcome.kind == CallOutcome::Kind::kDone ? outcome.result : kErrorUnknown);
}

bool ExecutorState::would_end_what_helpers_wait_for(const RecordHeader& header) {
  return kinds.ends_context(header) && tasks.any();
}

// The call ends an object and has to wait for others. No other call waits for it meanwhile.
bool ExecutorState::waits_for_others(const Call& call, const OwedEvents& needed) {
  return call.awaited() && (!needed.empty() || would_end_what_helpers_wait_for(call.header_));
}

// Waits on a helper thread, because the lane waits for the answer. It waits only once: calls of
// other lanes that are answered early meanwhile were not made before this call.
void ExecutorState::ask_behind(std::shared_ptr<Call> call, OwedEvents owed) {
  const bool ends_context = kinds.ends_context(call->header_);
  tasks.begin();
  const auto wait = [this, call, ends_context, owed = std::move(owed)] {
    tasks.wait_for(owed);
    tasks.end();
    if (ends_context) tasks.wait_for_none();
    inbox.put_waited(call);
  };
  if (pool->run(wait).ok()) return;
  tasks.end();
  replies.answer(*call, kErrorOutOfMemory);
}

// With the role. Continues queries after their wait, and calls that end an object after theirs.
void ExecutorState::ask_again() {
  for (const auto& call : inbox.take_waited()) {
    if (would_end_what_helpers_wait_for(call->header_)) {  // Other helpers have begun since.
      ask_behind(call, {});
    } else if (!kinds.is_query(*call)) {
      parked.finish_awaited(std::make_unique<Call>(std::move(*call)));
    } else if (asks_about_queued(*call)) {
      replies.answer(*call, kErrorNotReady);
    } else {
      ask_the_driver(*call);
    }
  }
}

}  // namespace gpurun::server
