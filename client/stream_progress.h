// StreamProgress: what the client knows of its streams' ends by itself: which calls were issued to
// a stream, and up to which one all are known to be complete because somebody has waited. Waiting
// for a stream to which nothing was issued since costs no round trip (docs/adr/0024), nor does
// waiting for one to which only quiet work was (docs/adr/0033), or for an upload behind which the
// program has gone on (docs/adr/0036).
//
// Any thread; no locks but at a handle's first use. One slot per index of the handle table.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "client/command_log.h"
#include "client/handles.h"
#include "protocol/limits.h"

namespace gpurun::client {

// What a call waits for: all that was issued before it, of its stream or of its context.
enum class Waits : std::uint8_t { kNot, kForStream, kForContext };

// What a call gives to its stream.
enum class Work : std::uint8_t {
  kAny,
  // What ends by itself and soon, waits for nothing but its stream, and is seen by the program only
  // when it reads what was written (docs/adr/0033): fills and small copies in,
  kQuiet,
  // and records of events.
  kRecord,
  // A wait for an event: nothing of its own, but what follows stands behind another stream's work.
  kStreamWait,
  // Nothing of which a later wait for the stream need know; without a stream, for the context.
  kNone,
};

class StreamProgress {
 public:
  StreamProgress() = default;
  StreamProgress(const StreamProgress&) = delete;
  StreamProgress& operator=(const StreamProgress&) = delete;
  ~StreamProgress();

  // Where the number of a call stands that may add `work` to `stream` (as CallSite::stream) of
  // `context`; without a stream (0) to the context's legacy one. Kinds count in created streams:
  // elsewhere all is kAny. For the log to write, at once.
  CommandLog::Marks marks(Handle context, Handle stream, Work work) noexcept;
  // The call `sequence` may add work to any context: a graph's nodes have their own.
  void issued_anywhere(std::uint64_t sequence) noexcept;
  // All that was issued there before `sequence`, a call that waited for it, is complete.
  void complete(Waits waits, Handle context, Handle stream, std::uint64_t sequence) noexcept;
  // All that was issued to `context` is; a context that was given nothing has nothing to complete.
  bool complete(Handle context) const noexcept;
  // Nothing was issued there since it was complete.
  bool idle(Waits waits, Handle context, Handle stream) const noexcept;
  // Nothing but quiet work was issued to the created `stream` of `context` since it was complete,
  // and at most kQuietMax pieces of that; and no synchronous copy of another lane than `lane` that
  // was answered early may be incomplete: what is waited for may stand behind that.
  bool may_wait_early(std::uint32_t lane, Handle context, Handle stream) const noexcept;
  // Whether an event that is recorded in `stream` now tells the end of an upload: of quiet work
  // behind the last thing that may be none.
  bool ends_upload(Handle stream) const noexcept;
  // The worker has told the end of a record of an event, the call `record`, in `stream`.
  void told(Handle stream, std::uint64_t record) noexcept;
  // As may_wait_early(), of a wait for the call `record`, which ends_upload(): the stream may stand
  // behind others' work, where the program has gone on to give it more.
  bool may_wait_for_upload(std::uint32_t lane, Handle context, Handle stream,
                           std::uint64_t record) const noexcept;
  // The call `sequence` of `lane` is a synchronous copy that is answered early.
  void copied_early(std::uint32_t lane, std::uint64_t sequence) noexcept;
  static constexpr std::uint32_t kQuietMax = 64;

 private:
  // Of a created stream: its own. Of a context: its legacy stream's.
  // Begins as zero bytes (make_zeroed()).
  struct Slot {
    std::atomic<Handle> owner{0};
    std::atomic<std::uint64_t> issued{0};
    std::atomic<std::uint64_t> done{0};
    // A created stream's, by kinds of work, which `issued` leaves out; and how many pieces of quiet
    // work and records were issued since somebody waited, early waits included.
    std::atomic<std::uint64_t> quiet_issued{0};
    std::atomic<std::uint64_t> record_issued{0};
    std::atomic<std::uint64_t> wait_issued{0};
    std::atomic<std::uint32_t> quiet_pieces{0};
    // Up to where the ends of records have told that it is complete. What kernels have printed by
    // then need not be here.
    std::atomic<std::uint64_t> told_done{0};
    // A context's: to its created and per-thread streams; and up to where all of it is complete.
    std::atomic<std::uint64_t> others_issued{0};
    std::atomic<std::uint64_t> all_done{0};
  };
  static constexpr std::size_t kChunkSlots = 1024;
  static constexpr std::size_t kChunks = limits::kHandlesMax / kChunkSlots;

  // No synchronous copy of another lane that was answered early may be incomplete.
  bool no_others_copy(std::uint32_t lane) const noexcept;
  static std::uint64_t last_of(const Slot& own) noexcept;
  // nullptr: nothing is known of it.
  Slot* find(Handle handle) const noexcept;
  // Its own, made now if need be. nullptr: no memory; then nothing is ever known to be idle.
  Slot* claim(Handle handle) noexcept;

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex claiming_;
  std::atomic<std::uint64_t> anywhere_issued_{0};
  std::atomic<std::uint64_t> waited_{0};  // The last call that waited for a stream and succeeded.
  // The last copy that was answered early: number and lane, written together.
  static constexpr int kLaneBits = 17;
  static_assert(limits::kLanesMax < std::size_t{1} << kLaneBits);
  std::atomic<std::uint64_t> early_copy_{0};
  std::atomic<bool> forgetful_{false};  // Some call has found no memory.
};

}  // namespace gpurun::client
