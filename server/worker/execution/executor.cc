// Executor: passes each request of its callers to one of its parts.
#include "server/worker/execution/executor.h"

#include <atomic>
#include <utility>

#include "server/worker/execution/copy_calls.h"
#include "server/worker/execution/executor_parts.h"
#include "server/worker/execution/hot_calls.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

using protocol::RecordHeader;
using protocol::RecordView;

namespace {

std::atomic<std::uint64_t> next_id{1};

}  // namespace

std::uint64_t next_executor_id() noexcept { return next_id++; }

// Call

HandleTable::Found Call::resolve_stream(std::uint64_t client_stream) {
  return executor_->parts_->streams.resolve(client_stream, header_.lane, header_.context);
}
HandleTable& Call::handles() noexcept { return executor_->handles(); }
const DriverFunctions& Call::driver() const noexcept { return executor_->options().driver; }
const HostMemory* Call::host_memory() const noexcept { return executor_->options().host_memory; }
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

// Executor

Executor::Executor(const WorkerOptions& options, Outbox& outbox, BulkLanes* bulk)
    : parts_(std::make_unique<ExecutorParts>(
          *this, options, outbox, bulk,
          CallRunner::FormHandlers{run_copy_in, run_copy_out, hot_handler})) {
  parts_->bound.set_wake([](void* of) { static_cast<Executor*>(of)->wake(); }, this);
  parts_->issuer.start();
}

Executor::~Executor() {
  parts_->at_end.call();
  parts_->issuer.stop();
  parts_->at_end.call();  // A handler may have set it meanwhile. No handler runs any more.
  parts_->issuer.join();
  parts_->completions.stop();
  parts_->pool.reset();  // Ends once the helpers' calls have returned.
  parts_->queued.clear();
}

Status Executor::accept(std::span<const RecordView> calls) { return parts_->issuer.accept(calls); }

bool Executor::call_driver(void* context, DriverTask task) {
  return parts_->tasks.run(context, std::move(task));
}

std::future<void> Executor::settle_aside(void* context) {
  if (parts_->bulk == nullptr || !parts_->bulk->out().numbering_due()) return {};
  const auto settled = std::make_shared<std::promise<void>>();
  std::future<void> future = settled->get_future();
  const auto task = [parts = parts_.get(), settled](const DriverFunctions&, int) {
    parts->completions.settle();
    parts->replies.run_due();
    settled->set_value();
  };
  return call_driver(context, task) ? std::move(future) : std::future<void>();
}

void Executor::wake() noexcept { parts_->inbox.wake(); }

void Executor::go_on() noexcept { parts_->issuer.go_on(); }

HandleTable& Executor::handles() noexcept { return parts_->handles; }
const WorkerOptions& Executor::options() const noexcept { return parts_->options; }
BulkLanes* Executor::bulk() noexcept { return parts_->bulk; }
void Executor::received(std::size_t records, std::size_t bytes) noexcept {
  if (parts_->options.statistics != nullptr)
    parts_->options.statistics->count_batch(records, bytes);
}
void Executor::idle() { parts_->completions.attend(); }
bool Executor::context_is_known(const Call& call) {
  return parts_->order.context_is_known(call.header().context);
}
void Executor::begin_context_wait(const Call& call) {
  parts_->order.begin_context_wait(call.header().context);
}
void Executor::end_context_wait() { parts_->order.end_context_wait(); }
bool Executor::context_is_done(const Call& call) {
  return parts_->order.context_is_done(call.header().context);
}
Completions& Executor::completions() noexcept { return parts_->completions; }
void Executor::context_ended(std::uint64_t context, std::uint64_t driver_context) {
  void* const driver_value = reinterpret_cast<void*>(driver_context);
  forget_all_thread_contexts();
  parts_->completions.forget(driver_value);
  if (parts_->bulk != nullptr) {
    parts_->bulk->staging_in().context_ended(driver_value);
    parts_->bulk->staging_out().context_ended(driver_value);
    parts_->bulk->pulls().staging().context_ended(driver_value);
  }
  parts_->streams.context_ended(context);
  parts_->inbox.put_ended_context(context);
}
SkippedWaits& Executor::skipped_waits() noexcept { return parts_->skipped_waits; }
EventRegistry& Executor::events() noexcept { return parts_->events; }
void Executor::tell_event_done(const RecordHeader& about, std::uint64_t event,
                               std::uint64_t record) {
  parts_->replies.tell_event_done(about, event, record, 0, false);
}
void Executor::tell_work_done(const RecordHeader& about, std::uint64_t ticket) {
  parts_->replies.tell_work_done(about, ticket);
}
void Executor::begin_client_turn() noexcept { parts_->issuer.begin_client_turn(); }
void Executor::end_client_turn() noexcept { parts_->issuer.end_client_turn(); }
std::uint64_t Executor::copies_said() { return parts_->replies.copies_said(); }
void Executor::register_ahead(const Call& call, Staging& staging, std::uint64_t bytes) {
  parts_->registration.begin(call, staging, bytes);
}
bool Executor::may_use(const Call& call, Staging& staging, const std::byte* slot,
                       std::uint64_t bytes) {
  return parts_->registration.may_use(call, staging, slot, bytes);
}
int Executor::want_bytes(const Call& call) { return parts_->replies.want_bytes(call); }
void Executor::set_before_reply(void (*before)(void* user), void* user) noexcept {
  parts_->replies.set_before_reply(before, user);
}
void Executor::set_at_end(std::function<void()> at_end) { parts_->at_end.set(std::move(at_end)); }
Status Executor::say(const protocol::ReplyHeader& item, ByteView payload, Saying saying) {
  return saying == Saying::kWhenRoom ? parts_->outbox.post_when_room(item, payload)
                                     : parts_->outbox.post(item, payload);
}
void Executor::report_failure(const RecordHeader& header, int result) noexcept {
  parts_->replies.report(header, result, 0);
}

}  // namespace gpurun::server
