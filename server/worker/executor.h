// Executor: hands decoded calls to the driver: which may be issued now, which are held, who gets
// which reply. Decides order by the records' headers alone (protocol/record.h, Order).
//
// One thread at a time has the executor's role: the decoder with the calls that came, a bulk
// connection's receiver with the bytes that came, or the executor's own thread when something else
// that a held queue waits for has happened (a staging slot retired, a helper is done). The role is
// held across driver calls on purpose: it is what makes "one executor issues" true. Everybody else
// talks to it through wake().
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <span>

#include "base/status.h"
#include "protocol/record.h"
#include "server/worker/call.h"
#include "server/worker/decoder.h"
#include "server/worker/worker.h"

namespace gpurun::server {

class BulkLanes;
class Completions;
class EventBook;
class Outbox;
class Staging;

class Executor final : public CallSink {
 public:
  // Borrows all; they outlive it. Without bulk lanes, calls with bulk are not supported.
  Executor(const WorkerOptions& options, Outbox& outbox, BulkLanes* bulk = nullptr);
  // Waits for helpers. What is still queued is not issued any more.
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Decoder thread. Issues what can be issued and queues the rest; waits only while more than
  // limits::kQueuedBytesMax are queued, and not while a turn of the client stands. Fails with the
  // outbox's failure, with kProtocol, or with kResourceExhausted beyond
  // limits::kQueuedBehindClientBytesMax.
  Status accept(std::span<const protocol::RecordView> calls) override;
  void received(std::size_t records, std::size_t bytes) noexcept override;
  void idle() override;

  // Something changed that a held queue may wait for. Any thread, never blocks.
  void wake() noexcept;
  // Likewise, by a thread that may block as the decoder's may: it issues what can be issued by
  // itself, unless another thread does just now. So nobody need be woken for bytes that came.
  void go_on() noexcept;

  // Called before each reply: what was printed goes first. Before the first accept().
  void set_before_reply(void (*before)(void* user), void* user) noexcept;
  // Calls the driver in `context`, by a helper, for who may not or may not wait. cuCtxDestroy waits
  // for it; the end of a primary context does not. `entered`: 0, or why it is none any more. Any
  // thread, while this lives; false: there is no helper to be had.
  using Errand = std::function<void(const DriverFunctions& driver, int entered)>;
  bool call_driver(void* context, Errand errand);
  // Has a helper, in `context`, tell what copies out are complete on the device: for a thread of
  // the driver's, which may not ask it. No future: none are to be told. While this lives.
  std::future<void> settle_aside(void* context);
  // The watermark of copies out whose bytes have been said: an item that is said from now on may
  // have the client wait for them before it hears of anything else.
  std::uint64_t copies_said();
  // Called once when this ends, before anything is torn down. Before the first accept(), or by a
  // handler.
  void set_at_end(std::function<void()> at_end);

  // Handlers' side, see Call.
  HandleTable& handles() noexcept;
  const WorkerOptions& options() const noexcept;
  BulkLanes* bulk() noexcept;
  Completions& completions() noexcept;
  // Whether it can be known that all is done which the context of `call` was given: from a handler.
  // Whether it is: from a CallOutcome's `ready`, with that context current.
  bool context_is_known(const Call& call);
  bool context_is_done(const Call& call);
  // Where it is not known: `call` will wait for all of it, and has.
  void begin_context_wait(const Call& call);
  void end_context_wait();
  EventBook& events() noexcept;
  // The client learns that the record of `event` by the call `record` is complete. `about` is the
  // call that found out, and is answered next. Not within a completion's `ended`.
  void tell_event_done(const protocol::RecordHeader& about, std::uint64_t event,
                       std::uint64_t record);
  // The client learns that all that was queued before the call `about` in its context is complete.
  // `ticket` is the client's. Any thread.
  void tell_work_done(const protocol::RecordHeader& about, std::uint64_t ticket);
  // The client sends the bytes of `call`, a copy in with kFlagBulkOnDemand, once the stream has
  // done what it was given so far. 0, or the CUresult, and nobody is asked. From its handler.
  int want_bytes(const Call& call);
  // From now on until as many ends something stands until the client says a word on the log: the
  // decoder must get to it, whatever is queued. Any thread.
  void begin_client_turn() noexcept;
  void end_client_turn() noexcept;
  // Has `staging` registered for `call`, which copies `bytes` through it, by a helper: what it uses
  // and, for a large copy, a part ahead of that. From handlers, as early as they know.
  void register_ahead(const Call& call, Staging& staging, std::uint64_t bytes);
  // Likewise. Whether the driver may be given `slot`; if not, the call is to be held.
  bool may_use(const Call& call, Staging& staging, const std::byte* slot, std::uint64_t bytes);
  // The client's `context`, the driver's `driver_context`, is gone or going, with all that is in
  // it. From the handler that ends it.
  void context_ended(std::uint64_t context, std::uint64_t driver_context);
  // The call, which was answered or that nobody waits for, failed on the device. Any thread.
  void report_failure(const protocol::RecordHeader& header, int result) noexcept;
  // Something else that the client is to hear. Any thread; kWhenRoom may wait for the client's
  // acknowledgements (Outbox::post_when_room()).
  enum class Saying : std::uint8_t { kWhenRoom, kAtOnce };
  Status say(const protocol::ReplyHeader& item, ByteView payload,
             Saying saying = Saying::kWhenRoom);

 private:
  friend class Call;
  std::unique_ptr<ExecutorState> state_;
};

}  // namespace gpurun::server
