// Issuer: what happens to a call. It runs at once or is queued, held, parked or answered.
#include "server/worker/execution/issuer.h"

#include <string>
#include <utility>

#include "base/thread_name.h"
#include "server/driver/error_numbers.h"

namespace gpurun::server {

using protocol::Order;
using protocol::RecordHeader;
using protocol::RecordView;

namespace {

// Completions that are mostly asked for at once get their helpers after this many further calls.
constexpr unsigned kCallsUnattendedMax = 16;

}  // namespace

Status Issuer::accept(std::span<const RecordView> calls) {
  std::unique_lock role(role_);
  const BulkLanes::Gathering gathering(parts_.bulk);
  for (const RecordView& call : calls) {
    GPURUN_RETURN_IF_ERROR(wait_for_room(role));
    GPURUN_RETURN_IF_ERROR(accept(call));
    pump();
    if (++calls_unattended_ >= kCallsUnattendedMax) {
      calls_unattended_ = 0;
      parts_.completions.attend();
    }
  }
  parts_.replies.send_all();
  return parts_.outbox.failure();
}

void Issuer::go_on() noexcept {
  const std::unique_lock role(role_, std::try_to_lock);
  if (!role.owns_lock()) return parts_.inbox.wake();
  if (!stopping_) issue_held(false);
}

void Issuer::begin_client_turn() noexcept {
  client_turns_.fetch_add(1, std::memory_order_acq_rel);
  parts_.inbox.wake();  // The decoder may wait for room.
}

void Issuer::end_client_turn() noexcept { client_turns_.fetch_sub(1, std::memory_order_acq_rel); }

void Issuer::start() {
  thread_ = std::thread([this] { serve(); });
}

void Issuer::stop() {
  const std::lock_guard role(role_);
  stopping_ = true;
  parts_.inbox.stop();
}

void Issuer::pump() {
  parts_.inbox.for_each_ended([this](IssueQueue::Item* item) { parts_.queued.finish(item); });
  parts_.queries.go_on();
  while (IssueQueue::Item* item = parts_.queued.take()) issue(item);
}

Status Issuer::accept(const RecordView& record) {
  Call call;
  call.header_ = record.header;
  call.payload_ = record.payload;
  call.executor_ = &parts_.executor;
  if (parts_.options.statistics != nullptr) call.decoded_ns_ = StatisticsCounter::now();
  parts_.call_bulk.expect(call);
  if (parts_.kinds.is_query(call)) {
    parts_.queries.accept(std::make_unique<Call>(std::move(call)));
    return {};
  }
  const bool at_once =
      record.header.order == Order::kImmediate ||
      (parts_.queued.queue().empty() && record.header.order != Order::kOrderedHost);
  if (!at_once) {
    enqueue(Call::keep(std::move(call)));
    return {};
  }
  if (DeviceOrder::OwedEvents needed = parts_.queries.needed_still(call.header_);
      parts_.queries.waits_for_others(call, needed)) {
    parts_.queries.wait_behind(Call::keep(std::move(call)), std::move(needed));
    return {};
  }
  const CallOutcome outcome = parts_.runner.run(call);
  switch (outcome.kind) {
    case CallOutcome::Kind::kDone:
      parts_.replies.answer(call, outcome.result);
      break;
    case CallOutcome::Kind::kParked:
    case CallOutcome::Kind::kAfterStream:
      parts_.parked.go_on(Call::keep(std::move(call)), outcome);
      break;
    case CallOutcome::Kind::kHeld:
      if (record.header.order == Order::kImmediate) {
        parts_.replies.answer(call, kErrorUnknown);  // kImmediate has no queue to hold the call in.
        break;
      }
      enqueue(Call::keep(std::move(call)));
      parts_.queued.hold(parts_.queued.take());
      break;
  }
  return {};
}

// Releases the role while it waits.
Status Issuer::wait_for_room(std::unique_lock<std::mutex>& role) {
  const auto turn = [this] { return client_turns_.load(std::memory_order_acquire) != 0; };
  const auto goes_on = [&] {
    return parts_.queued.bytes() <= parts_.options.queued_bytes_max || turn() ||
           !parts_.outbox.failure().ok();
  };
  while (!goes_on()) {
    parts_.replies.send_all();  // The client may wait for these.
    parts_.completions.attend();
    parts_.queued.wait_for_change(role);
  }
  if (parts_.queued.bytes() <= parts_.options.queued_behind_client_bytes_max || !turn()) return {};
  return Status(Code::kResourceExhausted,
                "more than " + std::to_string(parts_.options.queued_behind_client_bytes_max >> 20) +
                    " MiB of calls were made behind a host function that has not returned");
}

void Issuer::serve() {
  name_this_thread("gpurun-execute");
  for (;;) {
    const ExecutorInbox::Reason reason = parts_.inbox.wait();
    if (reason == ExecutorInbox::Reason::kStop) return;
    const std::lock_guard role(role_);
    if (stopping_) return;
    issue_held(reason == ExecutorInbox::Reason::kTime);
  }
}

void Issuer::issue_held(bool look) {
  const BulkLanes::Gathering gathering(parts_.bulk);
  parts_.queued.retry_held();
  pump();
  if (look) parts_.stall.look();
  parts_.replies.send_all();
  parts_.completions.attend();
  parts_.queued.notify();  // Wakes threads that wait for a client that is gone, too.
}

void Issuer::enqueue(std::unique_ptr<Call> call) {
  parts_.stall.note_in_queue(call->header_);
  parts_.queued.push(std::move(call));
}

// From now on the device keeps later calls of the client behind the context's work so far.
void Issuer::issue_mark(IssueQueue::Item* item) {
  const RecordHeader& header = QueuedCalls::call_of(item).header_;
  const int result = parts_.order.mark_behind_context(header);
  if (result != 0) parts_.replies.report(header, result);
  parts_.queued.finish_mark(item);
}

// A helper would only find that the context's work is complete.
bool Issuer::may_run_at_once(const Call& call) {
  const Handlers& of = parts_.options.handlers;
  return call.header_.opcode == of.memory_free && of.only_waits != nullptr && !call.awaited() &&
         of.only_waits(call) && parts_.order.is_behind_complete_work(call.header_);
}

void Issuer::run_at_once(IssueQueue::Item* item) {
  Call& call = QueuedCalls::call_of(item);
  const CallOutcome outcome = parts_.runner.run(call);
  const bool done = outcome.kind == CallOutcome::Kind::kDone;
  parts_.replies.answer(call, done ? outcome.result : kErrorUnknown);
  parts_.queued.finish(item);
}

void Issuer::issue(IssueQueue::Item* item) {
  if (item->is_mark()) return issue_mark(item);
  Call& call = QueuedCalls::call_of(item);
  if (call.header_.order == Order::kOrderedHost) {
    DeviceOrder::OwedEvents needed = parts_.queries.needed_still(call.header_);
    if (needed.empty() && may_run_at_once(call)) return run_at_once(item);
    return parts_.parked.run_ordered_host(item, std::move(needed));
  }
  if (parts_.kinds.is_query(call)) {
    auto query = std::make_unique<Call>(std::move(call));
    parts_.queued.finish(item);
    return parts_.queries.answer(std::move(query));
  }
  if (DeviceOrder::OwedEvents needed = parts_.queries.needed_still(call.header_);
      parts_.queries.waits_for_others(call, needed)) {
    auto waiting = std::make_shared<Call>(std::move(call));
    parts_.queued.finish(item);
    return parts_.queries.wait_behind(std::move(waiting), std::move(needed));
  }
  const CallOutcome outcome = parts_.runner.run(call);
  switch (outcome.kind) {
    case CallOutcome::Kind::kHeld:
      return parts_.queued.hold(item);
    case CallOutcome::Kind::kDone:
      parts_.replies.answer(call, outcome.result);
      return parts_.queued.finish(item);
    case CallOutcome::Kind::kParked:
    case CallOutcome::Kind::kAfterStream: {
      auto waiting = std::make_unique<Call>(std::move(call));
      parts_.queued.finish(item);
      return parts_.parked.go_on(std::move(waiting), outcome);
    }
  }
}

}  // namespace gpurun::server
