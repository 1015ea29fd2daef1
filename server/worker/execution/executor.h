// Executor: the issuer of decoded calls. It decides which call goes to the driver now, which call
// is held, and which reply a call gets. Order comes from the record headers alone
// (protocol/log/record.h, Order).
//
// The way of a call: accept() gives each record to the Issuer. A call that nothing precedes runs at
// once. Any other becomes an item of QueuedCalls, and runs when the items that it waits for have
// been issued. CallRunner runs a call: it enters the context, finds the driver's stream, lets
// DeviceOrder put the stream behind the last barrier, and calls the handler. The outcome decides
// the rest. A call that is done is answered by ReplySender. A call that cannot be issued yet is
// held in its queue. A call that waits for the device or blocks in the driver goes to ParkedCalls.
// Queries take a way of their own (CompletionQueries), because nothing is issued for them.
//
// Threads: one thread at a time has the executor's role, which is a mutex of the Issuer. The
// decoder has it for calls that came, and the receiver of a bulk connection for bytes that came.
// The executor's own thread has it for other events that a held queue waits for: a staging slot has
// retired, or a helper is done. Helper threads (HelperThreadPool) never have it. They block for
// parked calls, ordered host calls, events of Completions, registrations of memory and tasks of
// DriverTasks. They leave their results in ExecutorInbox, and the executor's own thread takes the
// role for them.
//
// Locks: the role comes first, and it is held across driver calls on purpose, so that one thread at
// a time issues. Behind it each part has a mutex of its own. Those of ExecutorInbox, DriverTasks,
// HelperThreadPool, StreamBound, EventRegistry and ReplySender are leaves. The mutex of Completions
// is released around each `ended`. ClientStreams holds its mutex while the driver creates a
// per-thread stream. No part takes the role under its own mutex.
//
// Rules for a change:
// - A launch or a copy costs no further lock, atomic operation, virtual call or allocation.
// - State that a lock or the role protects is private to one part. executor_parts.h has the parts
//   in the order in which they need each other, and no part calls back into a later one.
// - No handler blocks under the role. What may block is parked, or is an ordered host call.
// - An `ended` of Completions takes no watermark. It uses ReplySender::later().
// - A thread that makes a held call possible calls wake() or go_on().
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <span>

#include "base/status.h"
#include "protocol/log/record.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/decoder.h"
#include "server/worker/execution/worker_options.h"

namespace gpurun::server {

class BulkLanes;
class Completions;
class EventRegistry;
class Outbox;
class SkippedWaits;
class Staging;
struct ExecutorParts;

class Executor final : public CallSink {
 public:
  // Borrows all arguments, which outlive it. Without bulk lanes, calls with bulk are not supported.
  Executor(const WorkerOptions& options, Outbox& outbox, BulkLanes* bulk = nullptr);
  // Waits for helpers. Calls that are still queued are not issued any more.
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // For the decoder thread. Issues what can be issued and queues the rest. It waits only while more
  // than limits::kQueuedBytesMax are queued, and not during a client turn (begin_client_turn()).
  // Fails with the outbox's failure, with kProtocol, or with kResourceExhausted beyond
  // limits::kQueuedBehindClientBytesMax.
  Status accept(std::span<const protocol::RecordView> calls) override;
  void received(std::size_t records, std::size_t bytes) noexcept override;
  void idle() override;

  // Something changed that a held queue may wait for. Any thread. Never blocks.
  void wake() noexcept;
  // As wake(), for a thread that may block as the decoder may. It issues what can be issued by
  // itself, unless another thread does that now. So no thread is woken for bytes that came.
  void go_on() noexcept;

  // `before` is called before each reply, so that printed output goes first. Set before the first
  // accept().
  void set_before_reply(void (*before)(void* user), void* user) noexcept;
  // Calls the driver in `context` on a helper thread, for callers that must not do so or must not
  // block. cuCtxDestroy waits for such a call, but the end of a primary context does not. `entered`
  // is 0, or the CUresult for a context that is not valid any more. Any thread, during the life of
  // this object. False: no helper is available.
  using DriverTask = std::function<void(const DriverFunctions& driver, int entered)>;
  bool call_driver(void* context, DriverTask task);
  // A helper in `context` settles the copies out that are complete on the device. This is for
  // threads of the driver, which must not query it. Returns no future when there is nothing to
  // settle. Only during the life of this object.
  std::future<void> settle_aside(void* context);
  // The watermark of copies out that have been sent to the client. An item that is sent from now on
  // may make the client wait for these bytes before it processes the item.
  std::uint64_t copies_said();
  // `at_end` is called once when this object ends, before anything is torn down. Set before the
  // first accept(), or by a handler.
  void set_at_end(std::function<void()> at_end);

  // For handlers, see Call.
  HandleTable& handles() noexcept;
  const WorkerOptions& options() const noexcept;
  BulkLanes* bulk() noexcept;
  Completions& completions() noexcept;
  // context_is_known(): whether it can be known that all work of the call's context is done. For
  // handlers. context_is_done(): whether it is done. For `ready` of a CallOutcome, with that
  // context current.
  bool context_is_known(const Call& call);
  bool context_is_done(const Call& call);
  // For a context that is not known: `call` begins to wait for all of its work, and has ended the
  // wait.
  void begin_context_wait(const Call& call);
  void end_context_wait();
  EventRegistry& events() noexcept;
  SkippedWaits& skipped_waits() noexcept;
  // Notifies the client that the record of `event` by the call `record` is complete. `about` is the
  // call that found this, and is answered next. Not within an `ended` of Completions.
  void tell_event_done(const protocol::RecordHeader& about, std::uint64_t event,
                       std::uint64_t record);
  // Notifies the client that all work that was queued in the context before the call `about` is
  // complete. `ticket` is the client's. Any thread.
  void tell_work_done(const protocol::RecordHeader& about, std::uint64_t ticket);
  // Requests the bytes of `call`, a copy in with kFlagBulkOnDemand, once its stream has done its
  // work so far. Returns 0, or the CUresult, and then requests nothing. For its handler.
  int want_bytes(const Call& call);
  // Between begin and end a call waits for a message of the client on the log. The decoder must
  // then reach that message, however much is queued. Turns nest. Any thread.
  void begin_client_turn() noexcept;
  void end_client_turn() noexcept;
  // Registers `staging` for `call`, which copies `bytes` through it, on a helper thread: the parts
  // that it uses and, for a large copy, one part ahead. Handlers call it as early as they can.
  void register_ahead(const Call& call, Staging& staging, std::uint64_t bytes);
  // Whether the driver may be given `slot`. If not, `call` is to be held. For handlers.
  bool may_use(const Call& call, Staging& staging, const std::byte* slot, std::uint64_t bytes);
  // The client's `context`, which is the driver's `driver_context`, has ended or is ending, with
  // all that is in it. For the handler that ends it.
  void context_ended(std::uint64_t context, std::uint64_t driver_context);
  // The call was answered, or the client does not wait for it, and it failed on the device. Any
  // thread.
  void report_failure(const protocol::RecordHeader& header, int result) noexcept;
  // Sends any other item to the client. Any thread. kWhenRoom may wait for the client's
  // acknowledgements (Outbox::post_when_room()).
  enum class Saying : std::uint8_t { kWhenRoom, kAtOnce };
  Status say(const protocol::ReplyHeader& item, ByteView payload,
             Saying saying = Saying::kWhenRoom);

 private:
  friend class Call;
  std::unique_ptr<ExecutorParts> parts_;
};

}  // namespace gpurun::server
