// Session: this process attached to one worker. Calls go in by post() and call(); order, flushing,
// waiting, deferred errors, heartbeats and the death of the peer are handled here and nowhere else.
//
// What a caller needs to know:
// - post() appends the call to the command log and returns: no round trip, no allocation, no system
//   call but a wake-up when the sender was asleep. It waits only when the log is full
//   (limits::kLogBytes not yet taken by the worker).
// - call() appends, sends and waits for the reply. The wait has no total deadline (kernels may run
//   for hours) but ends when nothing was heard of the worker for limits::kSilenceDeadlineS.
// - Both return a CUresult. Anything else than 0 may also be an earlier failure: a sticky one of
//   the context at any call, a non-sticky one at a fence (architecture, section 5). A fence that
//   delivers an earlier error has still done its own work, and `reply` is filled if that succeeded.
// - Any thread may call anything, with its own lane. Start, and threads, are lazy: nothing runs
//   before start(). All signals are blocked in our threads.
// - After fork() every call in the child returns kResultNotInitialized; nothing is sent.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/brief_spin.h"
#include "base/bytes.h"
#include "base/result.h"
#include "client/device_pace.h"
#include "client/handles.h"
#include "client/host_box.h"
#include "client/lane.h"
#include "client/stream_progress.h"
#include "protocol/record.h"
#include "transport/transport.h"

namespace gpurun::client {

class Bulk;
class CommandLog;
class DeathBoard;
class DeferredErrors;
class GraphHost;
class Stats;

// CUresults that the call path itself decides (cuda.h). The one place that maps our failures.
inline constexpr int kResultOutOfMemory = 2;     // CUDA_ERROR_OUT_OF_MEMORY: lanes, handles.
inline constexpr int kResultNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED: a forked child.
inline constexpr int kResultInvalidValue = 1;    // CUDA_ERROR_INVALID_VALUE: over a bound.
inline constexpr int kResultNotReady = 600;      // CUDA_ERROR_NOT_READY.
// CUDA_ERROR_DEVICE_UNAVAILABLE: worker, daemon, network or server died; every later call too.
inline constexpr int kResultPeerGone = 46;

// What a call says about itself besides its payload; see protocol::RecordHeader.
struct CallSite {
  std::uint16_t opcode = 0;
  protocol::Form form = protocol::Form::kCall;
  protocol::Order order = protocol::Order::kContext;
  // kFlagBarrier, kFlagWritesSubject, kFlagTell, kFlagPassesStreams; the session sets the others.
  std::uint16_t flags = 0;
  Handle context = 0;
  Handle stream = 0;  // Handle, or 0, 1, 2 as the program gave it (for _ptsz: 0 becomes 2).
  Handle subject = 0;
  std::uint64_t bulk = 0;  // Transfer; chosen by the session's own functions.
  // Not sent. What the call waits for: all that is complete, and printed, when it succeeds.
  Waits waits = Waits::kNot;
  // Likewise. What it gives to its stream.
  Work work = Work::kAny;
};

struct Reply {
  int result = 0;    // CUresult of this very call, as the worker's driver gave it.
  ByteView payload;  // Valid until this lane's next call.
};

struct SessionOptions {
  bool every_call_is_a_fence = false;  // GPURUN_SYNC=1.
  bool launches_wait = false;          // CUDA_LAUNCH_BLOCKING=1: the launch tells its own error.
  bool statistics = false;             // GPURUN_STATS=1: count per function.
  bool packing = true;                 // GPURUN_PACKING is not "off".
  bool packed_chunks = false;          // The worker knows them (Feature::kPackedChunks).
  bool packed_records = false;         // Likewise (Feature::kPackedRecords).
  bool spread_copies = false;          // Likewise (Feature::kSpreadCopies).
  // GPURUN_SPIN_US, 0 to kSpinUsMax: how long a thread that sends or waits for a reply stays awake
  // before it sleeps.
  std::chrono::microseconds spin = BriefSpin::kSpan;
  static constexpr long kSpinUsMax = 1000;
  // GPURUN_BULK_CONNECTIONS, 1 to kBulkConnectionsMax: connections that share the bytes of copies.
  // 0: it is not set, and their number is decided by measuring.
  unsigned bulk_connections = 0;
  static constexpr long kBulkConnectionsMax = 8;
  // For tests; the product uses the bounds of protocol/limits.h.
  std::chrono::milliseconds silence_deadline{limits::kSilenceDeadlineS * 1000};
  std::chrono::milliseconds heartbeat{limits::kHeartbeatS * 1000};
  std::size_t log_bytes = limits::kLogBytes;
  DevicePace::Clock::duration ahead_slack = DevicePace::kSlack;
  std::FILE* output = stdout;  // Where device printf goes; see device_output.h.
  // Reads GPURUN_SYNC, GPURUN_STATS, GPURUN_PACKING, GPURUN_SPIN_US, GPURUN_BULK_CONNECTIONS
  // (another text than a number in its range counts as none, with a warning) and
  // CUDA_LAUNCH_BLOCKING.
  static SessionOptions from_environment();
};

// Where further bulk connections of a session that runs come from. One thread at a time.
class MoreConnections {
 public:
  struct Joined {
    std::unique_ptr<transport::Connection> connection;
    unsigned cores = 0;  // That the worker has; 0: it does not say.
  };
  virtual ~MoreConnections() = default;
  // One over which the worker hears us from now on. Fails within bounds, and at once when `keeper`
  // does not want it any more; then the session is as it was.
  virtual Result<Joined> open(transport::DescriptorKeeper& keeper) = 0;
};

class Session {
 public:
  // Connections over which both ends have proved who they are and said their hellos.
  struct Channels {
    std::unique_ptr<transport::Connection> log;
    std::vector<std::unique_ptr<transport::Connection>> bulk;  // At least one.
    std::string server_name;                                   // For messages: "gpu1:4790".
    // Where more of them come from, if that is to be measured; or nowhere.
    std::unique_ptr<MoreConnections> more;
    DeathBoard* deaths = nullptr;  // Where it is asked how the worker died, by `id`; or nowhere.
    std::array<std::uint8_t, 16> id{};
  };

  // Starts the session's threads. Their stacks are small; kResultOutOfMemory's Status twin
  // kResourceExhausted when they cannot be started.
  static Result<std::unique_ptr<Session>> start(Channels channels, const SessionOptions& options);
  // Ends the session without a goodbye and joins its threads. The interposer never does this: its
  // session is immortal, because calls come after main() has returned.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Appends a call that nobody waits for. The payload is the concatenation of `parts`; over
  // kRecordPayloadBytesMax: kResultInvalidValue. `*sequence` (optional) is the call's number.
  // With every_call_is_a_fence this is call().
  int post(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
           std::uint64_t* sequence = nullptr);

  // Appends a call and waits for its reply.
  int call(Lane& lane, const CallSite& site, std::span<const ByteView> parts, Reply* reply);

  // Convenience for one part.
  int post(Lane& lane, const CallSite& site, ByteView payload) {
    return post(lane, site, std::span<const ByteView>(&payload, 1));
  }
  int call(Lane& lane, const CallSite& site, ByteView payload, Reply* reply) {
    return call(lane, site, std::span<const ByteView>(&payload, 1), reply);
  }

  // Like post() and call(), with a payload of up to limits::kBulkBytesMax that travels beside the
  // log (a module image). The worker gives it whole to the call's handler (Call::bulk_payload()).
  // Return when `bulk` may be reused. site.bulk is chosen here; an empty `bulk` is none.
  int post_with_bulk(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                     ByteView bulk);
  int call_with_bulk(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                     ByteView bulk, Reply* reply);

  // Like post(), of Order::kOrderedHost, for a payload that the worker is believed to have: it is
  // kept and sent only if the worker asks for it. False in `*offered`: nothing was done, because
  // too much is offered already.
  int post_with_offer(Lane& lane, CallSite site, ByteView payload,
                      std::shared_ptr<const Bytes> offer, bool* offered);

  // What must be true before a call that is answered locally returns success: 0, or the sticky
  // error of `context`, kResultPeerGone, kResultNotInitialized.
  int health(Handle context) const noexcept;

  // A primary context begins a new life under its old handle: what was lost is not any more. After
  // the reply to the call that began it.
  void forget_lost(Handle context);

  // Copies. `source`/`destination` on the host are plain memory of the program. When a source is
  // read:
  enum class Reading : std::uint8_t {
    kNow,    // Before we return: the program may change or free it then.
    kSoon,   // As the wire can take it: it stays untouched until the copy is complete (pinned).
    kInTurn  // Likewise, but not before the stream has come to the copy: earlier work may still
             // write there (may_still_write()).
  };
  // Host to device, ordered in site.stream (the legacy stream for the synchronous calls, which set
  // kFlagBarrier). Returns at once but for kNow, which may wait for room in the window of bytes
  // under way. site.form and site.bulk are chosen here.
  int copy_in(Lane& lane, CallSite site, std::uint64_t device_destination, ByteView source,
              Reading reading);
  // Likewise, of a box (record.h); `source` is it without gaps, of box.copy.bytes.
  int copy_in(Lane& lane, CallSite site, const protocol::BoxCopyPayload& box, ByteView source,
              Reading reading);
  // Some of `memory` has still to be read for a copy in.
  bool reads(ByteView memory) const noexcept;
  // Before memory goes: waits until none of it has to be read any more, or the session has ended.
  void await_read(ByteView memory) noexcept;
  // Waits until each copy in from before this call has read its source, or the session has ended.
  void await_sources_read() noexcept;
  // As above, for `at_most`. Returns whether all of them have been read.
  bool sources_read_within(std::chrono::milliseconds at_most) noexcept;
  // Device to host. `wait`: returns when the bytes are there (cuMemcpyDtoH, and any copy into
  // pageable memory); else at once, and the bytes arrive before any completion that a later call
  // reports (cuMemcpyDtoHAsync into pinned memory, which must stay alive until then).
  int copy_out(Lane& lane, CallSite site, MutableBytes destination, std::uint64_t device_source,
               bool wait);
  // Likewise, of a box (record.h) to one of the program's, of as many bytes.
  int copy_out(Lane& lane, CallSite site, const HostBox& destination,
               const protocol::BoxCopyPayload& box, bool wait);

  // True while a copy_out(wait = false) has not arrived, or a graph lives that writes to this
  // process: host-visible writes that forbid answering implicit synchronisation early.
  bool host_write_outstanding() const noexcept;
  // Likewise, and it may be `memory` that is written: a copy out that has not arrived goes there,
  // or nobody knows where the others write. What a stream reads from there must not be read yet.
  bool may_still_write(ByteView memory) const noexcept;
  // Another one: a function of the program that waits in a stream, or runs. Counts them; returns
  // how many there were.
  std::size_t add_host_function() noexcept { return host_functions_.fetch_add(1); }
  void end_host_function() noexcept { host_functions_.fetch_sub(1); }

  // The program asks whether the last record of the event site.subject is complete, or with `wait`
  // until it is. True: nothing need be sent, and `*result` is what the call returns: a completion
  // that was told before or, with `wait`, has now come, as the worker tells it unasked. It is 0, an
  // earlier failure (all that came before the completion has been told, so this is as good as a
  // fence), or the session's end. False: call the worker.
  bool event_answered(Lane& lane, const CallSite& site, bool wait, int* result);
  // The program waits for what `site` says, or asks whether it is complete. True: it is known to
  // be, because somebody has waited and nothing was issued there since; nothing need be sent, and
  // `*result` is what the call returns: 0, an earlier failure (this lane has made no call since its
  // last fence, so there is none to hear of that it would have heard of by another one), or the
  // session's end. False: call the worker.
  bool idle_answered(Lane& lane, const CallSite& site, int* result);
  // All that was issued to `context` is known to be complete.
  bool known_complete(Handle context) const noexcept;
  // The program waits for the created, non-blocking stream site.stream. True: nothing but quiet
  // work was issued there since it was complete, so the wait was posted (`payload` as for post())
  // and `*result` is what the call returns: 0, an earlier failure, or the session's end. The worker
  // starts no later call on the device before that work is complete, answers no later question, and
  // ends nothing that it might need. False: nothing was done; call the worker.
  bool wait_answered_early(Lane& lane, CallSite site, ByteView payload, int* result);
  // Likewise for `record` of the event site.subject, as stream_of_record() has found it: it was an
  // upload there, behind which the program has gone on, and the device keeps up (docs/adr/0036).
  struct Recorded {
    Handle stream = 0;
    std::uint64_t record = 0;
  };
  bool wait_answered_early(Lane& lane, const Recorded& record, CallSite site, ByteView payload,
                           int* result);
  // The program is about to wait for `event`: where it was recorded last, if that is known and its
  // end is not. Stream 0: it is not.
  Recorded stream_of_record(Handle event);
  // Whether a record of `event` shall carry kFlagTell.
  bool event_wanted(Handle event) const noexcept;
  // Something else than Form::kEventRecord may record `event` from now on: it is always asked for.
  void event_recorded_elsewhere(Handle event) noexcept;

  // Another process has `event` too: who records it or lets a stream wait for it may tell that one
  // by ways of its own, so both are fences from now on.
  void share_event(Handle event) noexcept;
  bool is_shared(Handle event) const noexcept;
  // Another process may look at some memory of this one, or this one at some of another's: from now
  // on, until as many calls of unshare_memory(), what CUDA completes before it returns is complete
  // on return.
  void share_memory() noexcept { memory_shared_.fetch_add(1); }
  void unshare_memory() noexcept { memory_shared_.fetch_sub(1); }
  // Whether implicit synchronisation may be answered before it has happened. Not where a graph
  // lives that reads this process's memory either: nobody here knows when it has.
  bool may_answer_early() const noexcept {
    return memory_shared_.load() == 0 && !every_call_is_a_fence() && !host_write_outstanding() &&
           !graphs_touch_memory();
  }
  // A graph lives that reads or writes memory of this process, or runs a function of it.
  bool graphs_touch_memory() const noexcept;

  // `tell` is called with the ticket of each protocol::MemoryReturn whose work is done, before the
  // reply to a call that waits for it. On the thread that reads the log, which may be any that
  // waits: it must not make calls.
  void set_work_done(void (*tell)(std::uint64_t ticket)) noexcept {
    work_done_.store(tell, std::memory_order_release);
  }

  // GPURUN_SYNC=1: post() waits for the call, too.
  bool every_call_is_a_fence() const noexcept;
  // CUDA_LAUNCH_BLOCKING=1: whoever launches a kernel waits for it.
  bool launches_wait() const noexcept;

  HandleTable& handles() noexcept { return handles_; }
  Stats& stats() noexcept;
  Bulk& bulk() noexcept;
  GraphHost& graphs() noexcept;

  // Sends what is in the log. Nobody needs to call it: the flush rule sends by itself.
  void flush();

  // False once the peer is gone. `death()` then says why.
  bool alive() const noexcept { return !dead_.load(std::memory_order_acquire); }
  Status death() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);

  HandleTable handles_;
  std::atomic<bool> dead_{false};
  std::atomic<int> memory_shared_{0};
  std::atomic<std::size_t> host_functions_{0};
  std::atomic<void (*)(std::uint64_t)> work_done_{nullptr};
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpurun::client
