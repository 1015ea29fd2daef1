// CompletionQueries: looks at the queue first, then at calls that were answered early, and asks the
// driver last.
#include "server/worker/execution/completion_queries.h"

#include <array>
#include <utility>

#include "server/driver/error_numbers.h"

namespace gpurun::server {

using protocol::Order;
using protocol::RecordHeader;

CompletionQueries::OwedEvents CompletionQueries::needed_still(const RecordHeader& header) {
  const bool marked =
      header.order == Order::kOrderedHost && (header.flags & protocol::kFlagBarrier) != 0;
  if (marked && (header.flags & protocol::kFlagFence) != 0) {
    return parts_.order.owed_to(header.lane, header.context, header.sequence + 1);
  }
  // Another thread may have told this one that its copy is complete.
  constexpr std::uint32_t kAll = DeviceBarrier::kAnyLane;
  if (parts_.kinds.asks_for_accounts(header)) return parts_.order.owed_to(kAll, 0, header.sequence);
  if (!parts_.kinds.ends_object(header)) return {};
  return parts_.order.owed_to(kAll, 0, header.sequence);
}

void CompletionQueries::accept(std::unique_ptr<Call> query) {
  if (!parts_.queued.push_behind_early(query)) answer(std::move(query));
}

// True if some of what the query is about has not been issued.
bool CompletionQueries::asks_about_queued(const Call& query) const {
  const RecordHeader& header = query.header();
  const IssueQueue& queue = parts_.queued.queue();
  if (header.opcode == parts_.handlers.event_query) return queue.has_writer_of(header.subject);
  if (header.opcode == parts_.handlers.event_elapsed_time) {
    const std::array<std::uint64_t, 2> two = parts_.handlers.events_of_elapsed_time(query);
    return queue.has_writer_of(two[0]) || queue.has_writer_of(two[1]);
  }
  return CallKinds::is_legacy(header) ? queue.has_legacy_work(header.context)
                                      : queue.has_queue_of(header);
}

void CompletionQueries::answer(std::unique_ptr<Call> query) {
  if (asks_about_queued(*query)) return parts_.replies.answer(*query, kErrorNotReady);
  const RecordHeader& header = query->header();
  const bool of_any = header.opcode == parts_.handlers.event_elapsed_time;
  OwedEvents owed = parts_.order.owed_to(header.lane, of_any ? 0 : header.context, header.sequence);
  if (!owed.empty()) {
    parts_.stall.note_query(header);
    return wait_behind(Call::keep(std::move(*query)), std::move(owed));
  }
  ask_the_driver(*query);
}

void CompletionQueries::ask_the_driver(Call& query) {
  const CallOutcome outcome = parts_.runner.run(query);
  const bool done = outcome.kind == CallOutcome::Kind::kDone;
  parts_.replies.answer(query, done ? outcome.result : kErrorUnknown);
}

bool CompletionQueries::would_end_what_helpers_wait_for(const RecordHeader& header) const {
  return parts_.kinds.ends_context(header) && parts_.tasks.any();
}

bool CompletionQueries::waits_for_others(const Call& call, const OwedEvents& needed) const {
  return call.awaited() && (!needed.empty() || would_end_what_helpers_wait_for(call.header()));
}

// Waits on a helper thread, because the lane waits for the answer. It waits only once: calls of
// other lanes that are answered early meanwhile were not made before this call.
void CompletionQueries::wait_behind(std::shared_ptr<Call> call, OwedEvents owed) {
  const bool ends_context = parts_.kinds.ends_context(call->header());
  parts_.tasks.begin();
  const auto wait = [this, call, ends_context, owed = std::move(owed)] {
    parts_.tasks.wait_for(owed);
    parts_.tasks.end();
    if (ends_context) parts_.tasks.wait_for_none();
    parts_.inbox.put_waited(call);
  };
  if (parts_.pool.run(wait).ok()) return;
  parts_.tasks.end();
  parts_.replies.answer(*call, kErrorOutOfMemory);
}

void CompletionQueries::go_on() {
  for (const auto& call : parts_.inbox.take_waited()) {
    if (would_end_what_helpers_wait_for(call->header())) {  // Other helpers have begun since.
      wait_behind(call, {});
    } else if (!parts_.kinds.is_query(*call)) {
      parts_.parked.finish_awaited(std::make_unique<Call>(std::move(*call)));
    } else if (asks_about_queued(*call)) {
      parts_.replies.answer(*call, kErrorNotReady);
    } else {
      ask_the_driver(*call);
    }
  }
}

}  // namespace gpurun::server
