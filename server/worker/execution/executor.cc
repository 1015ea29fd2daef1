// Executor: what happens to a call. It runs at once (call_runner.cc) or is queued, held, parked or
// answered.
#include "server/worker/execution/executor.h"

#include <string>
#include <utility>

#include "base/thread_name.h"
#include "server/worker/execution/executor_state.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {
namespace {

// Completions that are mostly asked for at once get their helpers after this many further calls.
constexpr unsigned kCallsUnattendedMax = 16;

std::atomic<std::uint64_t> next_id{1};

}  // namespace

std::uint64_t next_executor_id() noexcept { return next_id++; }

// Call

HandleTable::Found Call::resolve_stream(std::uint64_t client_stream) {
  return executor_->state_->streams.resolve(client_stream, header_.lane, header_.context);
}
HandleTable& Call::handles() noexcept { return executor_->handles(); }
const DriverFunctions& Call::driver() const noexcept { return executor_->options().driver; }
void* Call::user() const noexcept { return executor_->options().user; }

int Call::fetch_bulk() {
  BulkLanes* lanes = executor_->bulk();
  if (bulk_ != nullptr || header_.bulk == 0) return 0;
  if (lanes == nullptr) return kErrorNotSupported;
  return lanes->in().fetch_whole(header_.bulk, header_.sequence, &bulk_);
}

MutableBytes Call::reserve_reply(std::size_t byte_count) {
  if (byte_count > protocol::kReplyPayloadBytesMax) return {};
  reply_.resize(byte_count);
  return reply_;
}
void Call::set_reply(ByteView bytes) { reply_.assign(bytes.begin(), bytes.end()); }

std::unique_ptr<Call> Call::keep(Call&& call) {
  auto kept = std::make_unique<Call>(std::move(call));
  if (kept->owned_.empty()) kept->owned_.assign(kept->payload_.begin(), kept->payload_.end());
  kept->payload_ = kept->owned_;
  return kept;
}

void ExecutorState::enqueue(std::unique_ptr<Call> call) {
  stall.note_in_queue(call->header_);
  queued.push(std::move(call));
}

// From now on the device keeps later calls of the client behind the context's work so far.
void ExecutorState::issue_mark(IssueQueue::Item* item) {
  const RecordHeader& header = QueuedCalls::call_of(item).header_;
  if (const int result = order.mark_behind_context(header); result != 0)
    replies.report(header, result, 0);
  queued.finish_mark(item);
}

void ExecutorState::issue(IssueQueue::Item* item) {
  if (item->is_mark()) return issue_mark(item);
  Call& call = QueuedCalls::call_of(item);
  if (call.header_.order == Order::kOrderedHost)
    return parked.run_ordered_host(item, queries.needed_still(call.header_));
  if (kinds.is_query(call)) {
    auto question = std::make_unique<Call>(std::move(call));
    queued.finish(item);
    return queries.answer(std::move(question));
  }
  if (DeviceOrder::OwedEvents needed = queries.needed_still(call.header_);
      queries.waits_for_others(call, needed)) {
    auto waiting = std::make_shared<Call>(std::move(call));
    queued.finish(item);
    return queries.wait_behind(std::move(waiting), std::move(needed));
  }
  const CallOutcome outcome = runner.run(call);
  switch (outcome.kind) {
    case CallOutcome::Kind::kHeld:
      return queued.hold(item);
    case CallOutcome::Kind::kDone:
      replies.answer(call, outcome.result);
      return queued.finish(item);
    case CallOutcome::Kind::kParked:
    case CallOutcome::Kind::kAfterStream: {
      auto waiting = std::make_unique<Call>(std::move(call));
      queued.finish(item);
      return parked.go_on(std::move(waiting), outcome);
    }
  }
}

void ExecutorState::context_ended(std::uint64_t context, void* driver_context) {
  forget_all_thread_contexts();
  completions.forget(driver_context);
  if (bulk != nullptr) {
    bulk->staging_in().context_ended(driver_context);
    bulk->staging_out().context_ended(driver_context);
  }
  streams.context_ended(context);
  inbox.put_ended_context(context);
}

void ExecutorState::pump() {
  inbox.for_each_ended([this](IssueQueue::Item* item) { queued.finish(item); });
  queries.go_on();
  while (IssueQueue::Item* item = queued.take()) issue(item);
}

Status ExecutorState::accept(const RecordView& record) {
  Call call;
  call.header_ = record.header;
  call.payload_ = record.payload;
  call.executor_ = &executor;
  if (observer != nullptr) call.decoded_ns_ = Observer::now();
  call_bulk.expect(call);
  if (kinds.is_query(call)) {
    queries.accept(std::make_unique<Call>(std::move(call)));
    return {};
  }
  const bool at_once = record.header.order == Order::kImmediate ||
                       (queued.queue().empty() && record.header.order != Order::kOrderedHost);
  if (!at_once) {
    enqueue(Call::keep(std::move(call)));
    return {};
  }
  if (DeviceOrder::OwedEvents needed = queries.needed_still(call.header_);
      queries.waits_for_others(call, needed)) {
    queries.wait_behind(Call::keep(std::move(call)), std::move(needed));
    return {};
  }
  const CallOutcome outcome = runner.run(call);
  switch (outcome.kind) {
    case CallOutcome::Kind::kDone:
      replies.answer(call, outcome.result);
      break;
    case CallOutcome::Kind::kParked:
    case CallOutcome::Kind::kAfterStream:
      parked.go_on(Call::keep(std::move(call)), outcome);
      break;
    case CallOutcome::Kind::kHeld:
      if (record.header.order == Order::kImmediate) {
        replies.answer(call, kErrorUnknown);  // kImmediate has no queue to hold the call in.
        break;
      }
      enqueue(Call::keep(std::move(call)));
      queued.hold(queued.take());
      break;
  }
  return {};
}

// With the role, which is released while waiting.
Status ExecutorState::wait_for_room(std::unique_lock<std::mutex>& lock) {
  const auto turn = [this] { return client_turns.load(std::memory_order_acquire) != 0; };
  const auto goes_on = [&] {
    return queued.bytes() <= options.queued_bytes_max || turn() || !outbox.failure().ok();
  };
  while (!goes_on()) {
    replies.send_all();  // The client may wait for these.
    completions.attend();
    queued.wait_for_change(lock);
  }
  if (queued.bytes() <= options.queued_behind_client_bytes_max || !turn()) return {};
  return Status(Code::kResourceExhausted,
                "more than " + std::to_string(options.queued_behind_client_bytes_max >> 20) +
                    " MiB of calls were made behind a host function that has not returned");
}

void ExecutorState::serve() {
  name_this_thread("gpurun-execute");
  for (;;) {
    const ExecutorInbox::Reason reason = inbox.wait();
    if (reason == ExecutorInbox::Reason::kStop) return;
    const std::lock_guard lock(role);
    if (stopping) return;
    issue_held(reason == ExecutorInbox::Reason::kTime);
  }
}

// With the role.
void ExecutorState::issue_held(bool look) {
  const BulkLanes::Gathering gathering(bulk);
  queued.retry_held();
  pump();
  if (look) stall.look();
  replies.send_all();
  completions.attend();
  queued.notify();  // Wakes threads that wait for a client that is gone, too.
}

// Executor

Executor::Executor(const WorkerOptions& options, Outbox& outbox, BulkLanes* bulk)
    : state_(std::make_unique<ExecutorState>(*this, options, outbox, bulk)) {
  state_->bound.set_wake([](void* of) { static_cast<Executor*>(of)->wake(); }, this);
  state_->thread = std::thread([this] { state_->serve(); });
}

Executor::~Executor() {
  state_->end();
  {
    const std::lock_guard lock(state_->role);
    state_->stopping = true;
    state_->inbox.stop();
  }
  state_->end();  // A handler may have set it meanwhile. No handler runs any more.
  state_->thread.join();
  ExecutorState& state = *state_;
  state.completions.stop();
  state.pool.reset();  // Ends once the helpers' calls have returned.
  state.queued.clear();
}

Status Executor::accept(std::span<const RecordView> calls) {
  ExecutorState& state = *state_;
  std::unique_lock lock(state.role);
  const BulkLanes::Gathering gathering(state.bulk);
  for (const RecordView& call : calls) {
    GPURUN_RETURN_IF_ERROR(state.wait_for_room(lock));
    GPURUN_RETURN_IF_ERROR(state.accept(call));
    state.pump();
    if (++state.calls_unattended >= kCallsUnattendedMax) {
      state.calls_unattended = 0;
      state.completions.attend();
    }
  }
  state.replies.send_all();
  return state.outbox.failure();
}

bool Executor::call_driver(void* context, DriverTask task) {
  return state_->tasks.run(context, std::move(task));
}

std::future<void> Executor::settle_aside(void* context) {
  if (state_->bulk == nullptr || !state_->bulk->out().numbering_due()) return {};
  const auto settled = std::make_shared<std::promise<void>>();
  std::future<void> future = settled->get_future();
  const auto task = [state = state_.get(), settled](const DriverFunctions&, int) {
    state->completions.settle();
    state->replies.run_due();
    settled->set_value();
  };
  return call_driver(context, task) ? std::move(future) : std::future<void>();
}

void Executor::wake() noexcept { state_->inbox.wake(); }

void Executor::go_on() noexcept {
  const std::unique_lock lock(state_->role, std::try_to_lock);
  if (!lock.owns_lock()) return wake();
  if (!state_->stopping) state_->issue_held(false);
}

HandleTable& Executor::handles() noexcept { return state_->handles; }
const WorkerOptions& Executor::options() const noexcept { return state_->options; }
BulkLanes* Executor::bulk() noexcept { return state_->bulk; }
void Executor::received(std::size_t records, std::size_t bytes) noexcept {
  if (state_->observer != nullptr) state_->observer->count_batch(records, bytes);
}
void Executor::idle() { state_->completions.attend(); }
bool Executor::context_is_known(const Call& call) {
  return state_->order.context_is_known(call.header().context);
}
void Executor::begin_context_wait(const Call& call) {
  state_->order.begin_context_wait(call.header().context);
}
void Executor::end_context_wait() { state_->order.end_context_wait(); }
bool Executor::context_is_done(const Call& call) {
  return state_->order.context_is_done(call.header().context);
}
Completions& Executor::completions() noexcept { return state_->completions; }
void Executor::context_ended(std::uint64_t context, std::uint64_t driver_context) {
  state_->context_ended(context, reinterpret_cast<void*>(driver_context));
}
EventRegistry& Executor::events() noexcept { return state_->events; }
void Executor::tell_event_done(const RecordHeader& about, std::uint64_t event,
                               std::uint64_t record) {
  state_->replies.tell_event_done(about, event, record, 0, false);
}
void Executor::tell_work_done(const RecordHeader& about, std::uint64_t ticket) {
  state_->replies.tell_work_done(about, ticket);
}
void Executor::begin_client_turn() noexcept {
  state_->client_turns.fetch_add(1, std::memory_order_acq_rel);
  wake();  // The decoder may wait for room.
}
void Executor::end_client_turn() noexcept {
  state_->client_turns.fetch_sub(1, std::memory_order_acq_rel);
}
std::uint64_t Executor::copies_said() { return state_->replies.copies_said(); }
void Executor::register_ahead(const Call& call, Staging& staging, std::uint64_t bytes) {
  state_->registration.begin(call, staging, bytes);
}
bool Executor::may_use(const Call& call, Staging& staging, const std::byte* slot,
                       std::uint64_t bytes) {
  return state_->registration.may_use(call, staging, slot, bytes);
}
int Executor::want_bytes(const Call& call) { return state_->replies.want_bytes(call); }
void Executor::set_before_reply(void (*before)(void* user), void* user) noexcept {
  state_->replies.set_before_reply(before, user);
}
void Executor::set_at_end(std::function<void()> at_end) {
  const std::lock_guard lock(state_->end_mutex);
  state_->at_end = std::move(at_end);
}
Status Executor::say(const protocol::ReplyHeader& item, ByteView payload, Saying saying) {
  return saying == Saying::kWhenRoom ? state_->outbox.post_when_room(item, payload)
                                     : state_->outbox.post(item, payload);
}
void Executor::report_failure(const RecordHeader& header, int result) noexcept {
  state_->replies.report(header, result, 0);
}

}  // namespace gpurun::server
