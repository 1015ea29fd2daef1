// Session: this process attached to one worker. All calls of the program reach the worker through
// it, and all that the worker sends comes back through it.
//
// A call goes down, a reply goes up:
//
//   post(), call()                                               the lane's thread continues
//      | CallPath: number, place, record                              ^ Fences, LaneReplies
//   CommandLog (LogRoom: waits while it is full)                 ReplyHandler: what an item does
//      | LogSender: frames                                            ^ LogReceiver: frames
//      +------------------------ log connection ----------------------+
//
// post() appends a record and returns. The sender thread sends it as soon as it is idle. call()
// appends a fence, sends the log up to it and waits. WaitAnswers answers waits and polls as
// EarlyAnswers decides from KnownState, which is what the worker has reported before. Copies puts a
// few bytes into the record and gives more to Bulk, which has connections of its own. Failures of
// calls that were answered before they ran are kept, and a later fence returns them
// (DeferredErrors).
//
// Threads. Any thread of the program may call anything, with its own lane. The session has a sender
// thread and a receiver thread, Bulk has two for each connection, and GraphHost has two. At most
// one thread sends on the log (the sending role), and at most one reads it (the receiving role). A
// thread that waits for a reply takes a free role itself, because a thread switch costs more than
// the work. So code of the receiving side may run on any thread of the program.
//
// Locks. Each part locks only its own state. Copies' lock is the first: it is held around an append
// and the opening of a transfer. LogRoom's comes before CommandLog's. A lane's mutex comes before
// DeferredErrors' and the log's watch. All others are leaves. Bulk calls back without its lock,
// except to EventCompletions, which then takes none. Some threads sleep without a lock that their
// waker holds. They are counted by an atomic that both sides modify, so that one of them sees the
// other: see LogRoom, LaneReplies and LogSender.
//
// Rules for a change here:
// - An append takes the log's lock and no other, except at the first use of a lane or a handle. It
//   makes no allocation and no virtual call. It makes a system call only to wake a sleeping sender.
//   It waits only for room in the log.
// - What a reply may touch is noted before the commit of its call.
// - Whatever is awaited must also end when the peer dies: see SessionShutdown and stop_all().
// - tests/model explores the interleavings of this code. Its flaws must still be found.
//
// Rules for callers:
// - Both post() and call() return a CUresult. A result other than 0 may be an earlier failure
//   (architecture, section 5). Sticky ones of the context come at any call, others at a fence. A
//   fence that delivers one has still done its own work. `reply` is filled if that work succeeded.
// - A wait has no total deadline, because kernels may run for hours. It ends when the worker is
//   silent for limits::kSilenceDeadlineS.
// - No thread runs before start(). All signals are blocked in our threads.
// - After fork() every call in the child returns kResultNotInitialized, and nothing is sent.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "client/bulk/host_box.h"
#include "client/early_answers/host_memory_use.h"
#include "client/log/handles.h"
#include "client/log/lane.h"
#include "client/session/host_mirror_traffic.h"
#include "client/session/session_types.h"
#include "client/stats/connections_that_left.h"
#include "protocol/log/record.h"

namespace gpurun::client {

class Bulk;
class CommandLog;
class WorkerExitPage;
class DeferredErrors;
class GraphHost;
class Stats;

class Session {
 public:
  using Channels = SessionChannels;

  // Starts the session's threads, which have small stacks. kResourceExhausted: they cannot be
  // started.
  static Result<std::unique_ptr<Session>> start(Channels channels, const SessionOptions& options);
  // Ends the session without a goodbye and joins its threads. The interposer never does this. Its
  // session is immortal, because calls come after main() has returned.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Appends a call without waiting for it. The payload is the concatenation of `parts`. Over
  // kRecordPayloadBytesMax it returns kResultInvalidValue. `*sequence` (optional) receives the
  // call's number. With every_call_is_a_fence this is call().
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

  // As call(), with a payload of up to limits::kBulkBytesMax that travels beside the log (a module
  // image). The worker passes it whole to the call's handler (Call::bulk_payload()). Returns when
  // `bulk` may be reused. Sets site.bulk. An empty `bulk` means that there is no such payload.
  int call_with_bulk(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                     ByteView bulk, Reply* reply);

  // As post(), of Order::kOrderedHost, for a payload that the worker probably has. The payload is
  // kept, and sent only if the worker asks for it. If `*offered` is false, nothing was done,
  // because too much is offered already.
  int post_with_offer(Lane& lane, CallSite site, ByteView payload,
                      std::shared_ptr<const Bytes> offer, bool* offered);

  // The check before a locally answered call returns success. Returns 0, or the sticky error of
  // `context`, kResultPeerGone or kResultNotInitialized.
  int health(Handle context) const noexcept;

  // A primary context begins a new life under its old handle, so it is no longer lost. Call it
  // after the reply to the call that began the new life.
  void forget_lost(Handle context);

  // Copies. A host `source` or `destination` is plain memory of the program.
  using Reading = CopyReading;
  // Host to device, ordered in site.stream. Synchronous calls use the legacy stream and set
  // kFlagBarrier. Returns at once, except that kNow may wait for room in the window of bytes under
  // way. Sets site.form and site.bulk.
  int copy_in(Lane& lane, CallSite site, std::uint64_t device_destination, ByteView source,
              Reading reading);
  // As above, for a box (record.h). `source` is the box without gaps, of box.copy.bytes.
  int copy_in(Lane& lane, CallSite site, const protocol::BoxCopyPayload& box, ByteView source,
              Reading reading);
  // Returns whether some of `memory` must still be read for a copy in.
  bool reads(ByteView memory) const noexcept;
  // Call it before memory is freed. Waits until none of it must be read any more, or the session
  // ends.
  void await_read(ByteView memory) noexcept;
  // Whether the worker's device may read `source`, which is in pinned memory of the program
  // (docs/adr/0048). All of `allocation` is then lent to it until take_back(). A copy may be one of
  // Reading::kPulledSoon or kPulledInTurn then. Blocks at the first copy of an allocation, while
  // the kernel locks its pages.
  bool may_pull(ByteView allocation, ByteView source);
  // As may_pull(), for a copy from the device to `destination` with Arrival::kWritten
  // (docs/adr/0054). The worker's device may then write all of `allocation` until take_back().
  bool may_be_written(ByteView allocation, ByteView destination);
  // Call it before the device reaches `memory` of which the worker has a copy. No write of the
  // worker's device comes afterwards, because the kernel would not note it (docs/adr/0042). Waits a
  // second at most. After that, the bytes of copies under way come as chunks.
  void end_device_writes(ByteView memory) noexcept;
  // Call it before pinned memory ends, once none of it must be read or written any more.
  void take_back(ByteView memory);
  struct Pulls {
    std::uint64_t refused = 0;  // Copies that may_pull() refused because nothing could be lent.
    std::string reason = {};    // Of the last one.
    std::uint64_t sent = 0;     // Pulled copies that the worker could not read.
    std::uint64_t direct_bytes = 0;  // Of the others, bytes that went straight into GPU memory.
    std::uint64_t unwritten = 0;     // As `refused`, of may_be_written().
    std::string why_unwritten = {};
  };
  Pulls pulls() const;
  // Waits until each copy in from before this call has read its source, or the session has ended.
  void await_sources_read() noexcept;
  // As above, for `at_most`. Returns whether all of them have been read.
  bool sources_read_within(std::chrono::milliseconds at_most) noexcept;
  // Device to host. With `wait`, returns when the bytes are there (cuMemcpyDtoH, and any copy into
  // pageable memory). Without it, returns at once. The bytes then arrive before any completion that
  // a later call reports. That is for cuMemcpyDtoHAsync into pinned memory, which must stay alive
  // until then.
  using Arrival = CopyArrival;
  int copy_out(Lane& lane, CallSite site, MutableBytes destination, std::uint64_t device_source,
               bool wait, Arrival arrival = Arrival::kSent);
  // As above, from a device box (record.h) to a host box of as many bytes.
  int copy_out(Lane& lane, CallSite site, const HostBox& destination,
               const protocol::BoxCopyPayload& box, bool wait, Arrival arrival = Arrival::kSent);

  // Returns whether something may still write to the program's memory: a copy_out(wait = false)
  // that has not arrived, a host function, or a graph. Implicit synchronisation must not be
  // answered early then.
  bool host_write_outstanding() const noexcept;
  // As host_write_outstanding(), for writes that may go to `memory`. Host functions and graphs may
  // write anywhere. A stream's source in `memory` must not be read yet.
  bool may_still_write(ByteView memory) const noexcept;
  // Counts a host function that waits in a stream, or runs. Returns how many there were before.
  std::size_t add_host_function() noexcept;
  void end_host_function() noexcept;
  // Whether such a function waits or runs. It may need any thread of the program.
  bool host_functions_wait() const noexcept;

  // The program asks whether the last record of the event site.subject is complete, or waits for it
  // with `wait`. Returns true if nothing need be sent, and `*result` is then the call's result. The
  // completion was reported before, or has come during the wait, because the worker reports it
  // unasked. `*result` is 0, an earlier failure, or the session's end. All failures before the
  // completion have been reported, so this is as good as a fence. Returns false: call the worker.
  bool event_answered(Lane& lane, const CallSite& site, bool wait, int* result);
  // The program waits for what `site` names, or asks whether it is complete. Returns true if a
  // thread has waited for it and nothing was issued there since. Nothing need be sent, and
  // `*result` is the call's result: 0, an earlier failure, or the session's end. This lane has made
  // no call since its last fence, so it misses no failure. Returns false: call the worker.
  bool idle_answered(Lane& lane, const CallSite& site, int* result);
  // The program queries site->stream, which is not known to be idle. Returns true if nothing need
  // be sent. `*result` is then the call's result: 0, CUDA_ERROR_NOT_READY, an earlier failure, or
  // the session's end. Returns false: call the worker.
  bool poll_answered(Lane& lane, const CallSite& site, int* result);
  // Returns whether all calls issued to `context` are known to be complete.
  bool known_complete(Handle context) const noexcept;
  // See StreamProgress::last_issued().
  std::uint64_t last_work(Handle context) const noexcept;
  // Returns the number of the last call of all.
  std::uint64_t last_sequence() const noexcept;
  // See StreamProgress::last_issued_in() and complete_up_to().
  std::uint64_t last_work_in(Handle context, Handle stream) const noexcept;
  bool is_complete_up_to(Handle context, Handle stream, std::uint64_t sequence) const noexcept;
  // Returns whether wait_answered_early() may be true for that stream.
  bool may_wait_early(const Lane& lane, Handle context, Handle stream) const noexcept;
  // The program waits for the created, non-blocking stream site.stream. Returns true if only quiet
  // work was issued there since it was complete. The wait was then posted (`payload` as for
  // post()). `*result` is the call's result: 0, an earlier failure, or the session's end. Until
  // that work is complete, the worker starts no later call on the device and answers no later
  // query. It also ends nothing that the work might need. Returns false: nothing was done, and the
  // caller calls the worker.
  bool wait_answered_early(Lane& lane, CallSite site, ByteView payload, int* result);
  // As above, for `record` of the event site.subject, which stream_of_record() returned. The record
  // must end an upload, the program must have gone on behind it, and the device must keep up
  // (docs/adr/0036).
  using Recorded = EventRecord;
  bool wait_answered_early(Lane& lane, const Recorded& record, CallSite site, ByteView payload,
                           int* result);
  // The program is about to wait for `event`. Returns the place of its last record, if that is
  // known and its end is not. Stream 0: there is no such record.
  Recorded stream_of_record(Handle event);
  // Returns whether a record of `event` must carry kFlagTell.
  bool event_wanted(Handle event) const noexcept;
  // Calls other than Form::kEventRecord may record `event` from now on, so the worker is always
  // asked.
  void event_recorded_elsewhere(Handle event) noexcept;

  // Another process also has `event`. A program that records it, or lets a stream wait for it, may
  // notify that process in its own way. Both calls are therefore fences from now on.
  void share_event(Handle event) noexcept;
  bool is_shared(Handle event) const noexcept;
  // Another process may look at memory of this one, or this one at memory of another. Calls that
  // CUDA completes before they return are then complete on return. This ends after as many calls of
  // unshare_memory().
  void share_memory() noexcept;
  void unshare_memory() noexcept;

  // Host memory that the worker maps too (docs/adr/0040). False: it cannot be offered.
  bool may_offer_host_memory() const noexcept;
  // The lowest number for our descriptors in the program's process.
  int descriptor_min() const noexcept;
  // Gives the worker the memory file of the host arena, and waits for its answer. Call it once, on
  // a thread with its signals blocked.
  Status offer_host_memory(int file);
  // Host memory of which the worker has a copy (docs/adr/0042). False: it cannot have any.
  bool may_mirror_host_memory() const noexcept;
  // Whether that is the only way in which the device reaches host memory.
  bool mirrors_all_host_memory() const noexcept {
    return may_mirror_host_memory() && !may_offer_host_memory();
  }
  // Call it before the first block, on a thread with its signals blocked. Only the first call has
  // an effect.
  enum class MirrorMode : std::uint8_t {
    kNoted,     // The kernel helps to find writes, if it can.
    kCompared,  // It does not.
    kChecked,   // Nor does it here, and AccessCheck looks at managed memory.
  };
  void open_host_mirror(MirrorMode mode);
  // The worker has mapped such a block at `address`, which holds zeros. The block mirrors `memory`.
  // `noted`: that is private and anonymous. All are whole pages. False: there is no memory for it
  // here.
  bool add_host_mirror(std::uint64_t address, std::uint64_t bytes, std::byte* memory, bool noted);
  // Call it before the block is unmapped, here and there.
  void remove_host_mirror(std::uint64_t address);
  // From begin to end, the device reaches an allocation of whole lines in such a block. The end of
  // the block ends it, too. Nothing on the device uses the allocation when it ends. `in_turn`: the
  // program touches it only while no work is under way, as managed memory. `first`, `last`: see
  // HostMirror::add_allocation().
  void begin_mirrored(std::uint64_t address, std::uint64_t bytes, bool in_turn,
                      std::size_t first = 0, std::size_t last = 0);
  void end_mirrored(Lane& lane, std::uint64_t address);
  // Around code of the program that runs in the device's order, on the thread of `lane`. take: the
  // program can then see what earlier work has written. give: later work can then see what the
  // program has written. Calls of the program with work, and its waits, do the same by themselves.
  void take_device_writes(Lane& lane);
  // See HostMirrorTraffic::take_range().
  bool take_mirrored(Lane& lane, std::uint64_t address, std::uint64_t bytes);
  void give_host_writes(Lane& lane);
  // See HostMirrorTraffic.
  HostMirrorTraffic::Hold hold_exchanges();

  // From begin to end, work on the device may read and write a range of this process's memory at
  // any time. Nothing is answered before it is complete meanwhile.
  void begin_device_reach() noexcept;
  void end_device_reach() noexcept;
  // The contexts with work that may use such memory. 0 fills the rest.
  HostMemoryUse::Contexts working_contexts() const noexcept;
  // The context has ended, with all of its work.
  void forget_work_of(Handle context) noexcept;
  // The created stream is about to be destroyed. Its work goes on.
  void forget_stream(Handle context, Handle stream) noexcept;
  // Returns whether implicit synchronisation may be answered before it has happened. It may not
  // while a graph lives that reads this process's memory, because the client does not know when it
  // has read.
  bool may_answer_early() const noexcept;
  // Returns whether a graph lives that reads or writes memory of this process, or runs a function
  // of it.
  bool graphs_touch_memory() const noexcept;

  // Sets a callback. It gets the ticket of each protocol::MemoryReturn with finished work, before
  // the reply to a call that waits for that work. It runs on the thread that reads the log, which
  // may be any waiting thread. It must not make calls.
  void set_work_done(void (*tell)(std::uint64_t ticket)) noexcept;

  // GPURUN_SYNC=1: post() also waits for the call.
  bool every_call_is_a_fence() const noexcept;
  // CUDA_LAUNCH_BLOCKING=1: a kernel launch waits for the kernel.
  bool launches_wait() const noexcept;

  // Which of the first connections have left shared memory or RDMA for their sockets, because a
  // fabric has failed or a side wanted it. Any thread.
  ConnectionsThatLeft connections_that_left() const;

  HandleTable& handles() noexcept { return handles_; }
  Stats& stats() noexcept;
  Bulk& bulk() noexcept;
  GraphHost& graphs() noexcept;

  // False once the peer is gone. `death()` then has the reason.
  bool alive() const noexcept;
  Status death() const;

 private:
  struct Impl;
  Session(Channels channels, const SessionOptions& options);

  HandleTable handles_;  // Before impl_, which uses it.
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpurun::client
