#include "server/executor.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/planted_flaw.h"
#include "server/bulk_lanes.h"
#include "server/completions.h"
#include "server/copy_calls.h"
#include "server/device_barrier.h"
#include "server/event_book.h"
#include "server/hot_calls.h"
#include "server/issue_queue.h"
#include "server/outbox.h"
#include "server/parking.h"
#include "server/stream_bound.h"
#include "server/thread_context.h"

namespace gpurun::server {
namespace {

using protocol::Form;
using protocol::Order;
using protocol::RecordHeader;
using protocol::RecordView;

constexpr unsigned kStreamNonBlocking = 1;  // CU_STREAM_NON_BLOCKING (cuda.h).
// Streams whose flags are remembered; all are forgotten beyond and asked for again.
constexpr std::size_t kTraitsMax = 4096;

// CUresults after which cuda.h says that the process must be ended and the context is lost.
bool is_sticky(int result) {
  switch (result) {
    case 214:  // CUDA_ERROR_ECC_UNCORRECTABLE
    case 226:  // CUDA_ERROR_CONTAINED
    case 700:  // CUDA_ERROR_ILLEGAL_ADDRESS
    case 702:  // CUDA_ERROR_LAUNCH_TIMEOUT
    case 710:  // CUDA_ERROR_ASSERT
    case 714:  // CUDA_ERROR_HARDWARE_STACK_ERROR
    case 715:  // CUDA_ERROR_ILLEGAL_INSTRUCTION
    case 716:  // CUDA_ERROR_MISALIGNED_ADDRESS
    case 717:  // CUDA_ERROR_INVALID_ADDRESS_SPACE
    case 718:  // CUDA_ERROR_INVALID_PC
    case 719:  // CUDA_ERROR_LAUNCH_FAILED
    case 721:  // CUDA_ERROR_TENSOR_MEMORY_LEAK
      return true;
    default:
      return false;
  }
}

bool is_hot(Form form) { return form != Form::kCall && form != Form::kRaw; }

std::atomic<std::uint64_t> next_executor{1};

}  // namespace

struct ExecutorState {
  ExecutorState(Executor& owner, const WorkerOptions& given, Outbox& out, BulkLanes* lanes)
      : executor(owner), options(given), outbox(out), bulk(lanes), barrier(options.driver) {}

  Status accept(const RecordView& record);
  void pump();
  void serve();

  int prepare(Call& call);
  CallOutcome run(Call& call);
  CallOutcome run_handler(Call& call);
  CallOutcome run_hot(Call& call, Handler handler);
  void note_record(const Call& call);
  void tell_event_done(const RecordHeader& about, std::uint64_t event, std::uint64_t record,
                       bool settled);
  std::uint64_t watermark(bool settled);
  // Announces what comes as bulk, so that it need not wait in staging for the call's turn.
  void expect_bulk(const Call& call);
  int take_bulk(Call& call, bool* here);
  void end_bulk(const Call& call, int result);
  HandleTable::Found resolve(std::uint64_t stream, std::uint32_t lane, std::uint64_t context);
  IssueQueue::StreamTraits traits(const RecordHeader& header);
  void enqueue(std::unique_ptr<Call> call);
  void issue(IssueQueue::Item* item);
  void finish(IssueQueue::Item* item);
  void park(std::unique_ptr<Call> call, int (*wait)(Call&));
  void answer_after_stream(std::unique_ptr<Call> call, int (*wait)(Call&));
  void go_on(std::unique_ptr<Call> call, const CallOutcome& outcome);
  void run_ordered_host(IssueQueue::Item* item);
  // `settled`: what is done on the device has been told by completions.
  void answer(const Call& call, int result, bool settled = false);
  void report(const RecordHeader& header, int result, std::uint64_t created);
  static std::unique_ptr<Call> keep(Call&& call);

  Executor& executor;
  const WorkerOptions options;
  Outbox& outbox;
  BulkLanes* const bulk;
  HandleTable handles;
  const std::uint64_t id = next_executor++;

  std::mutex role;  // Held by who issues. What follows is guarded by it.
  std::condition_variable shrunk;
  IssueQueue queue;
  std::size_t queued_bytes = 0;
  std::unordered_map<std::uint64_t, IssueQueue::StreamTraits> known_traits;
  DeviceBarrier barrier;

  std::mutex streams_mutex;
  std::map<std::pair<std::uint32_t, std::uint64_t>, void*> per_thread_streams;  // (lane, context).

  std::mutex wake_mutex;
  std::condition_variable woken;
  bool awake = false;                    // Guarded by wake_mutex.
  bool stopping = false;                 // Guarded by wake_mutex and role: either may read it.
  std::vector<IssueQueue::Item*> ended;  // Ordered host calls that have returned; wake_mutex.

  std::optional<Parking> parking{std::in_place};
  Completions completions{options.driver, *parking, id};
  StreamBound bound{options.launch_depth, completions};
  EventBook events;
  void (*before_reply)(void* user) = nullptr;
  void* before_reply_user = nullptr;
  std::thread thread;
};

// Call

HandleTable::Found Call::resolve_stream(std::uint64_t client_stream) {
  return executor_->state_->resolve(client_stream, header_.lane, header_.context);
}
HandleTable& Call::handles() noexcept { return executor_->handles(); }
const DriverFunctions& Call::driver() const noexcept { return executor_->options().driver; }
void* Call::user() const noexcept { return executor_->options().user; }

MutableBytes Call::reserve_reply(std::size_t byte_count) {
  if (byte_count > protocol::kReplyPayloadBytesMax) return {};
  reply_.resize(byte_count);
  return reply_;
}
void Call::set_reply(ByteView bytes) { reply_.assign(bytes.begin(), bytes.end()); }

// One call

HandleTable::Found ExecutorState::resolve(std::uint64_t stream, std::uint32_t lane,
                                          std::uint64_t context) {
  if (stream == protocol::kStreamNull || stream == protocol::kStreamLegacy) return {0, stream};
  if (stream != protocol::kStreamPerThread) return handles.find(stream, HandleKind::kStream);
  const std::lock_guard lock(streams_mutex);
  void*& made = per_thread_streams[{lane, context}];
  if (made == nullptr) {
    if (const int result = options.driver.cuStreamCreate(&made, 0); result != 0) {
      per_thread_streams.erase({lane, context});
      return {result, 0};
    }
  }
  return {0, reinterpret_cast<DriverValue>(made)};
}

// Makes the thread and the call what handlers are promised. 0 or the CUresult.
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
  if (header.order == Order::kStream) {
    const HandleTable::Found found = call.resolve_stream(header.stream);
    if (found.result != 0) return found.result;
    call.driver_stream_ = reinterpret_cast<void*>(found.value);
    return barrier.before(header, call.driver_stream_);
  }
  return 0;
}

void ExecutorState::expect_bulk(const Call& call) {
  const RecordHeader& header = call.header_;
  if (bulk == nullptr || header.bulk == 0) return;
  // A refusal comes again when the call is run.
  if (header.form == Form::kCopyIn) {
    protocol::CopyPayload copy;
    std::memcpy(&copy, call.payload_.data(), sizeof copy);
    (void)bulk->in().expect_copy(header.bulk, header.sequence, copy.bytes);
  } else if (!is_hot(header.form)) {
    (void)bulk->in().expect_whole(header.bulk, header.sequence);
  }
}

// The payload that came beside the log. 0 or the CUresult; without `here` it has not come yet.
int ExecutorState::take_bulk(Call& call, bool* here) {
  const RecordHeader& header = call.header_;
  *here = true;
  if (header.bulk == 0 || call.bulk_ != nullptr) return 0;
  if (bulk == nullptr) return kErrorNotSupported;
  int result = bulk->in().expect_whole(header.bulk, header.sequence);
  if (result == 0) result = bulk->in().take_whole(header.bulk, &call.bulk_);
  *here = call.bulk_ != nullptr;
  return result;
}

// What the call did not consume or deliver is over.
void ExecutorState::end_bulk(const Call& call, int result) {
  const RecordHeader& header = call.header_;
  if (bulk == nullptr || header.bulk == 0) return;
  if (header.form != Form::kCopyOut) return bulk->in().end_call(header.bulk, header.sequence);
  protocol::CopyPayload copy;
  std::memcpy(&copy, call.payload_.data(), sizeof copy);
  bulk->out().end_call(header.bulk, header.sequence, copy.bytes, result);
}

// Within what the driver's queue for the stream takes without blocking us.
CallOutcome ExecutorState::run_hot(Call& call, Handler handler) {
  if (!bound.room(call.driver_context_, call.driver_stream_)) return CallOutcome::held();
  const CallOutcome outcome = handler(call);
  if (outcome.kind != CallOutcome::Kind::kDone || outcome.result != 0) return outcome;
  const auto capturing = [&] { return is_capturing(options.driver, call.driver_stream_); };
  bound.added(call.driver_context_, call.driver_stream_, capturing);
  if (call.header_.form == Form::kEventRecord) note_record(call);
  return outcome;
}

// The client is told of the event's completion, if it would ask.
void ExecutorState::note_record(const Call& call) {
  const RecordHeader header = call.header_;
  if (!events.recorded(header.subject, header.sequence)) return;
  if (is_capturing(options.driver, call.driver_stream_)) return;
  (void)completions.after(call.driver_context_, call.driver_stream_, [this, header](int result) {
    if (result == 0) tell_event_done(header, header.subject, header.sequence, true);
  });
}

void ExecutorState::tell_event_done(const RecordHeader& about, std::uint64_t event,
                                    std::uint64_t record, bool settled) {
  if (record == 0) return;
  protocol::ReplyHeader item;
  item.kind = protocol::ReplyKind::kEventDone;
  item.opcode = about.opcode;
  item.lane = about.lane;
  item.call_sequence = record;
  item.context = about.context;
  item.subject = event;
  item.watermark = watermark(settled);
  (void)outbox.post(item, ByteView());
}

// Of everything that is complete on the device; `settled`: of what was told by completions.
std::uint64_t ExecutorState::watermark(bool settled) {
  if (bulk == nullptr) return 0;
  if (!settled && bulk->out().numbering_due()) completions.settle();
  return bulk->out().watermark();
}

CallOutcome ExecutorState::run_handler(Call& call) {
  const RecordHeader& header = call.header_;
  if (header.form == Form::kCopyIn) return run_copy_in(call);
  if (header.form == Form::kCopyOut) return run_copy_out(call);
  Handler handler = nullptr;
  if (header.opcode < Handlers::kOpcodes) handler = options.handlers.by_opcode[header.opcode];
  if (is_hot(header.form)) {
    if (header.bulk != 0) return CallOutcome::done(kErrorInvalidValue);
    return run_hot(call, handler != nullptr ? handler : hot_handler(header.form));
  }
  if (handler == nullptr) handler = options.handlers.generic;
  if (handler == nullptr) return CallOutcome::done(kErrorNotSupported);
  bool here = false;
  const int taken = take_bulk(call, &here);
  if (taken != 0) return CallOutcome::done(taken);
  if (!here) return CallOutcome::held();
  const CallOutcome outcome = handler(call);
  forget_thread_context();  // The long tail may have made another context current.
  return outcome;
}

CallOutcome ExecutorState::run(Call& call) {
  const RecordHeader& header = call.header_;
  if (const int result = prepare(call); result != 0) return CallOutcome::done(result);
  planted_flaw("worker");
  const CallOutcome outcome = run_handler(call);
  const bool issued = outcome.kind != CallOutcome::Kind::kHeld && outcome.result == 0;
  if (issued && header.order == Order::kStream && (header.flags & protocol::kFlagBarrier) != 0) {
    const int result = barrier.after(header, call.driver_stream_);
    if (result != 0 && outcome.kind == CallOutcome::Kind::kDone) return CallOutcome::done(result);
  }
  return outcome;
}

void ExecutorState::report(const RecordHeader& header, int result, std::uint64_t created) {
  protocol::ReplyHeader item;
  item.kind = protocol::ReplyKind::kCallError;
  item.opcode = header.opcode;
  item.lane = header.lane;
  item.result = result;
  item.call_sequence = header.sequence;
  item.context = header.context;
  item.subject = created;
  if (is_sticky(result)) item.flags = protocol::kReplyFlagSticky;
  (void)outbox.post(item, ByteView());
}

void ExecutorState::answer(const Call& call, int result, bool settled) {
  end_bulk(call, result);
  const RecordHeader& header = call.header_;
  if (!call.awaited()) {
    if (result != 0) report(header, result, call.created_);
    return;
  }
  protocol::ReplyHeader reply;
  reply.kind = protocol::ReplyKind::kReply;
  reply.opcode = header.opcode;
  reply.lane = header.lane;
  reply.result = result;
  reply.call_sequence = header.sequence;
  reply.context = header.context;
  reply.watermark = watermark(settled);
  if (before_reply != nullptr) before_reply(before_reply_user);
  // A failure is kept by the outbox, and accept() returns it.
  (void)outbox.post(reply, ByteView(call.reply_));
}

// A call that outlives its frame.
std::unique_ptr<Call> ExecutorState::keep(Call&& call) {
  auto kept = std::make_unique<Call>(std::move(call));
  if (kept->owned_.empty()) kept->owned_.assign(kept->payload_.begin(), kept->payload_.end());
  kept->payload_ = kept->owned_;
  return kept;
}

void ExecutorState::park(std::unique_ptr<Call> call, int (*wait)(Call&)) {
  std::shared_ptr<Call> shared = std::move(call);
  const Status started = parking->run([this, shared, wait] {
    // The stream and its barrier were the issuer's business; only the context is needed here.
    const RecordHeader header = shared->header_;
    shared->header_.order = Order::kLane;
    int result = prepare(*shared);
    shared->header_ = header;
    if (result == 0) result = wait(*shared);
    forget_thread_context();
    answer(*shared, result);
  });
  if (!started.ok()) answer(*shared, kErrorOutOfMemory);
}

void ExecutorState::go_on(std::unique_ptr<Call> call, const CallOutcome& outcome) {
  if (outcome.kind == CallOutcome::Kind::kParked) return park(std::move(call), outcome.wait);
  answer_after_stream(std::move(call), outcome.wait);
}

void ExecutorState::answer_after_stream(std::unique_ptr<Call> call, int (*wait)(Call&)) {
  const std::shared_ptr<Call> shared = std::move(call);
  const auto end = [this, shared, wait](int result) {
    const int own = wait(*shared);
    answer(*shared, result != 0 ? result : own, true);
  };
  const int result = completions.after(shared->driver_context_, shared->driver_stream_, end);
  if (result != 0) end(result);
}

// Queues

IssueQueue::StreamTraits ExecutorState::traits(const RecordHeader& header) {
  IssueQueue::StreamTraits result;
  if (header.order != Order::kStream || header.stream <= protocol::kStreamPerThread) return result;
  if (const auto it = known_traits.find(header.stream); it != known_traits.end()) return it->second;
  const HandleTable::Found found = handles.find(header.stream, HandleKind::kStream);
  unsigned flags = 0;
  if (found.result != 0 ||
      options.driver.cuStreamGetFlags(reinterpret_cast<void*>(found.value), &flags) != 0) {
    return result;  // The call fails when it is issued.
  }
  result.blocking = (flags & kStreamNonBlocking) == 0;
  void* home = nullptr;
  if (options.driver.cuStreamGetCtx != nullptr &&
      options.driver.cuStreamGetCtx(reinterpret_cast<void*>(found.value), &home) == 0) {
    result.context =
        handles.client_handle_of(reinterpret_cast<DriverValue>(home), HandleKind::kContext);
  }
  if (known_traits.size() >= kTraitsMax) known_traits.clear();
  known_traits[header.stream] = result;
  return result;
}

void ExecutorState::enqueue(std::unique_ptr<Call> call) {
  queued_bytes += call->header_.bytes;
  const RecordHeader header = call->header_;
  queue.push(header, traits(header), call.release());
}

void ExecutorState::finish(IssueQueue::Item* item) {
  const std::unique_ptr<Call> call(static_cast<Call*>(item->user()));
  queued_bytes -= call->header_.bytes;
  queue.finish(item);
  shrunk.notify_all();
}

void ExecutorState::run_ordered_host(IssueQueue::Item* item) {
  const auto end = [this, item] {
    {
      const std::lock_guard lock(wake_mutex);
      ended.push_back(item);
      awake = true;
    }
    woken.notify_one();
  };
  const Status started = parking->run([this, item, end] {
    Call& call = *static_cast<Call*>(item->user());
    CallOutcome outcome = run(call);
    if (outcome.kind == CallOutcome::Kind::kParked) outcome.result = outcome.wait(call);
    // Such a call may wait in the driver itself: there is nothing that it could be held for.
    const bool wrong =
        outcome.kind == CallOutcome::Kind::kHeld || outcome.kind == CallOutcome::Kind::kAfterStream;
    if (wrong) outcome.result = kErrorUnknown;
    answer(call, outcome.result);
    end();
  });
  if (started.ok()) return;
  answer(*static_cast<Call*>(item->user()), kErrorOutOfMemory);
  end();
}

void ExecutorState::issue(IssueQueue::Item* item) {
  Call& call = *static_cast<Call*>(item->user());
  if (call.header_.order == Order::kOrderedHost) return run_ordered_host(item);
  const CallOutcome outcome = run(call);
  switch (outcome.kind) {
    case CallOutcome::Kind::kHeld:
      return queue.hold(item);
    case CallOutcome::Kind::kDone:
      answer(call, outcome.result);
      return finish(item);
    case CallOutcome::Kind::kParked:
    case CallOutcome::Kind::kAfterStream: {
      auto waiting = std::make_unique<Call>(std::move(call));
      finish(item);
      return go_on(std::move(waiting), outcome);
    }
  }
}

void ExecutorState::pump() {
  {
    const std::lock_guard lock(wake_mutex);
    for (IssueQueue::Item* item : ended) finish(item);
    ended.clear();
  }
  while (IssueQueue::Item* item = queue.take()) issue(item);
}

Status ExecutorState::accept(const RecordView& record) {
  if (record.header.after_sequence != 0) {
    return Status(Code::kProtocol, "a call that waits for another server's");
  }
  Call call;
  call.header_ = record.header;
  call.payload_ = record.payload;
  call.executor_ = &executor;
  expect_bulk(call);
  const Order order = record.header.order;
  const bool at_once =
      order == Order::kImmediate || (queue.empty() && order != Order::kOrderedHost);
  if (!at_once) {
    enqueue(keep(std::move(call)));
    return {};
  }
  const CallOutcome outcome = run(call);
  switch (outcome.kind) {
    case CallOutcome::Kind::kDone:
      answer(call, outcome.result);
      break;
    case CallOutcome::Kind::kParked:
    case CallOutcome::Kind::kAfterStream:
      go_on(keep(std::move(call)), outcome);
      break;
    case CallOutcome::Kind::kHeld:
      if (order == Order::kImmediate) {
        answer(call, kErrorUnknown);  // Ordered nowhere: there is no queue to hold it in.
        break;
      }
      enqueue(keep(std::move(call)));
      queue.hold(queue.take());
      break;
  }
  return {};
}

void ExecutorState::serve() {
  for (;;) {
    {
      std::unique_lock lock(wake_mutex);
      woken.wait(lock, [this] { return awake || stopping; });
      if (stopping) return;
      awake = false;
    }
    const std::lock_guard lock(role);
    queue.retry_held();
    pump();
    shrunk.notify_all();  // Also whoever waits for a client that is gone.
  }
}

// Executor

Executor::Executor(const WorkerOptions& options, Outbox& outbox, BulkLanes* bulk)
    : state_(std::make_unique<ExecutorState>(*this, options, outbox, bulk)) {
  state_->bound.set_wake([](void* of) { static_cast<Executor*>(of)->wake(); }, this);
  state_->thread = std::thread([this] { state_->serve(); });
}

Executor::~Executor() {
  {
    const std::scoped_lock lock(state_->role, state_->wake_mutex);
    state_->stopping = true;
  }
  state_->woken.notify_all();
  state_->thread.join();
  ExecutorState& state = *state_;
  state.completions.stop();
  state.parking.reset();  // Ends once the helpers' calls have returned.
  state.queue.clear([](void* user) { delete static_cast<Call*>(user); });
}

Status Executor::accept(std::span<const RecordView> calls) {
  ExecutorState& state = *state_;
  std::unique_lock lock(state.role);
  for (const RecordView& call : calls) {
    state.shrunk.wait(lock, [&state] {
      return state.queued_bytes <= limits::kQueuedBytesMax || !state.outbox.failure().ok();
    });
    GPURUN_RETURN_IF_ERROR(state.accept(call));
    state.pump();
  }
  return state.outbox.failure();
}

void Executor::wake() noexcept {
  {
    const std::lock_guard lock(state_->wake_mutex);
    state_->awake = true;
  }
  state_->woken.notify_one();
}

HandleTable& Executor::handles() noexcept { return state_->handles; }
const WorkerOptions& Executor::options() const noexcept { return state_->options; }
BulkLanes* Executor::bulk() noexcept { return state_->bulk; }
Completions& Executor::completions() noexcept { return state_->completions; }
EventBook& Executor::events() noexcept { return state_->events; }
void Executor::tell_event_done(const RecordHeader& about, std::uint64_t event,
                               std::uint64_t record) {
  state_->tell_event_done(about, event, record, false);
}
void Executor::set_before_reply(void (*before)(void* user), void* user) noexcept {
  state_->before_reply = before;
  state_->before_reply_user = user;
}
void Executor::report_failure(const RecordHeader& header, int result) noexcept {
  state_->report(header, result, 0);
}

}  // namespace gpurun::server
