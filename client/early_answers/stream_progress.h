// StreamProgress: how far each stream is known to be complete, without a round trip.
//
// It records the calls that were issued to each stream. It also records the call up to which all
// are complete because a thread has waited. Waiting for a stream without any call since then costs
// no round trip (docs/adr/0024). Nor does waiting for a stream with only quiet work since then
// (docs/adr/0033). An upload costs none either, if the program has gone on behind it
// (docs/adr/0036).
//
// Any thread. No locks except at a handle's first use. One slot per index of the handle table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/slot_table.h"
#include "client/log/command_log.h"
#include "client/log/handles.h"
#include "protocol/limits.h"

namespace gpurun::client {

// What a call waits for: nothing, or all earlier calls of its stream or of its context.
enum class Waits : std::uint8_t { kNot, kForStream, kForContext };

// The work that a call adds to its stream.
enum class Work : std::uint8_t {
  kAny,
  // Fills and small copies in. They end soon and by themselves, and wait for nothing but their
  // stream. The program sees them only when it reads what they wrote (docs/adr/0033).
  kQuiet,
  // Records of events. They are quiet in the same way.
  kRecord,
  // A wait for an event. It is no work itself, but later calls wait for another stream's work.
  kStreamWait,
  // No work that a later wait for the stream must include. Without a stream, no work that a later
  // wait for the context must include.
  kNone,
};

class StreamProgress {
 public:
  StreamProgress() = default;
  StreamProgress(const StreamProgress&) = delete;
  StreamProgress& operator=(const StreamProgress&) = delete;

  // Returns the places for the number of a call that may add `work` to `stream` of `context`.
  // `stream` is as CallSite::stream, and 0 is the context's legacy stream. Only created streams
  // distinguish kinds of work. In other streams all work counts as kAny. Pass the result to
  // CommandLog::reserve() at once.
  CommandLog::Marks marks(Handle context, Handle stream, Work work) noexcept;
  // The call `sequence` may add work to any context, because a graph's nodes have their own.
  void issued_anywhere(std::uint64_t sequence) noexcept;
  // All calls issued there before `sequence` are complete. The call `sequence` waited for them.
  void complete(Waits waits, Handle context, Handle stream, std::uint64_t sequence) noexcept;
  // Returns whether all calls issued to `context` are complete. A context without calls is
  // complete.
  bool complete(Handle context) const noexcept;
  // Returns whether all calls issued to the created stream, or to the context's legacy stream, are
  // complete. Ends of records that the worker has reported count. Output that kernels printed by
  // then may not have arrived. False, too: the created stream has no calls.
  bool complete_in_stream(Handle stream) const noexcept;
  bool complete_in_legacy_stream(Handle context) const noexcept;
  // Returns whether work may be under way in the stream, which is as in marks().
  bool may_work(Handle context, Handle stream) const noexcept;
  // Returns the context of a created stream with calls, or 0.
  Handle context_of(Handle stream) const noexcept;
  // Returns the number of the last call that may have added work to `context`. Two equal results
  // mean that none came between them. ~0: this is not known.
  std::uint64_t last_issued(Handle context) const noexcept;
  // As last_issued(), for a created stream.
  std::uint64_t last_issued_in(Handle stream) const noexcept;
  // As last_issued(), for the created stream, or for the legacy stream of `context`.
  std::uint64_t last_issued_in(Handle context, Handle stream) const noexcept;
  // Returns whether all calls that were issued there up to `sequence` are known to be complete.
  // False for per-thread streams.
  bool complete_up_to(Handle context, Handle stream, std::uint64_t sequence) const noexcept;
  // Returns the number of the last synchronous copy or free that was answered early, or 0.
  std::uint64_t last_early_copy() const noexcept;
  // Returns whether nothing was issued there since it was complete.
  bool idle(Waits waits, Handle context, Handle stream) const noexcept;
  // Returns whether a wait for the created `stream` of `context` may be answered early. Since the
  // stream was complete, it must have had only quiet work, and at most kQuietMax pieces. No other
  // lane may have a synchronous copy that was answered early and may be incomplete: the work may be
  // queued behind it.
  bool may_wait_early(std::uint32_t lane, Handle context, Handle stream) const noexcept;
  // Returns whether an event that is recorded in `stream` now marks the end of an upload. It does
  // if quiet work follows the last call that may be other work.
  bool ends_upload(Handle stream) const noexcept;
  // The worker has reported that what precedes the call `sequence` in `stream` of `context` is
  // complete. The call is an event's record or a query.
  void told(Handle context, Handle stream, std::uint64_t sequence) noexcept;
  // As may_wait_early(), for a wait for the call `record`, which ends_upload(). The stream may wait
  // for other streams' work, but the program must have issued more to it since.
  bool may_wait_for_upload(std::uint32_t lane, Handle context, Handle stream,
                           std::uint64_t record) const noexcept;
  // The call `sequence` of `lane` is a synchronous copy that is answered early.
  void copied_early(std::uint32_t lane, std::uint64_t sequence) noexcept;
  static constexpr std::uint32_t kQuietMax = 64;

 private:
  // For a created stream: its own numbers. For a context: those of its legacy stream.
  struct Slot {
    std::atomic<Handle> owner{0};
    std::atomic<std::uint64_t> issued{0};
    std::atomic<std::uint64_t> done{0};
    // For a created stream: the last call of each kind of work that `issued` leaves out. Also the
    // number of pieces since a thread last waited: quiet work, records and early waits.
    std::atomic<std::uint64_t> quiet_issued{0};
    std::atomic<std::uint64_t> record_issued{0};
    std::atomic<std::uint64_t> wait_issued{0};
    std::atomic<std::uint32_t> quiet_pieces{0};
    // The stream is complete up to here, as reported ends of records show. Output that kernels
    // printed by then may not have arrived.
    std::atomic<std::uint64_t> told_done{0};
    // For a created stream.
    std::atomic<Handle> context{0};
    // For a context: the last call to its created and per-thread streams, and the call up to which
    // all of it is complete.
    std::atomic<std::uint64_t> others_issued{0};
    std::atomic<std::uint64_t> all_done{0};
  };

  // Returns whether no other lane has a copy that was answered early and may be incomplete.
  bool no_others_copy(std::uint32_t lane) const noexcept;
  static std::uint64_t last_of(const Slot& own) noexcept;
  // Returns the handle's slot, and makes it if needed. nullptr: there is no memory, and then
  // nothing is known to be idle.
  Slot* claim(Handle handle) noexcept;

  SlotTable<Slot, limits::kHandlesMax, 1024> slots_;  // Claimed under claiming_.
  std::mutex claiming_;
  std::atomic<std::uint64_t> anywhere_issued_{0};
  std::atomic<std::uint64_t> waited_{0};  // The last wait for a stream that succeeded.
  // The last copy that was answered early: its number and lane, in one word.
  static constexpr int kLaneBits = 17;
  static_assert(limits::kLanesMax < std::size_t{1} << kLaneBits);
  std::atomic<std::uint64_t> early_copy_{0};
  std::atomic<bool> forgetful_{false};  // Some call has found no memory.
};

}  // namespace gpurun::client
