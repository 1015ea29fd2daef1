// EventCompletions: what the client knows of recorded events, so that asking about one costs no
// round trip: what the worker told, and what it will tell unasked.
//
// An event that the program has asked about once (query, synchronise) is `wanted`: its later
// records carry kFlagTell, and the worker tells the end of each. One that only streams wait for
// costs nothing. An event that may be recorded by something else than a record of ours (a graph, a
// launch attribute, another process) is never known here.
//
// Any thread; no locks but at an event's first use. One slot per index of the handle table.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "client/handles.h"
#include "protocol/limits.h"

namespace gpurun::client {

class EventCompletions {
 public:
  enum class State : std::uint8_t {
    kAsk,       // Only the worker knows.
    kComing,    // The worker tells it unasked.
    kArriving,  // It has told; the bytes before it are still on the way.
    kComplete,  // Also of an event that was never recorded (manual, cuEventQuery).
  };

  EventCompletions() = default;
  EventCompletions(const EventCompletions&) = delete;
  EventCompletions& operator=(const EventCompletions&) = delete;
  ~EventCompletions();

  // Whether the next record of `event` shall be told.
  bool wanted(Handle event) const noexcept;
  // The call `sequence` records `event`, with kFlagTell if `told`. Before it is committed.
  void recorded(Handle event, std::uint64_t sequence, bool told) noexcept;
  // `event` may be recorded without a call of recorded() from now on.
  void recorded_elsewhere(Handle event) noexcept;
  // Other processes have `event` too, from now on.
  void share(Handle event) noexcept;
  bool is_shared(Handle event) const noexcept;

  // The program asks about `event`, which is wanted from now on. Returns its last record.
  std::uint64_t asked(Handle event) noexcept;
  // Of the record `record` of `event` or a later one, with `bulk_completions` arrived.
  State state(Handle event, std::uint64_t record, std::uint64_t bulk_completions) const noexcept;

  // The worker says that the record made by `sequence` is complete, and its bytes are there after
  // `watermark` bulk completions; with a `result` that it will not say. Who reads the log.
  void completed(Handle event, std::uint64_t sequence, int result,
                 std::uint64_t watermark) noexcept;

 private:
  struct Slot {
    std::atomic<Handle> event{0};
    std::atomic<std::uint64_t> recorded{0};   // Its last record; 0: none.
    std::atomic<std::uint64_t> told{0};       // The last one with kFlagTell.
    std::atomic<std::uint64_t> completed{0};  // The latest that is complete.
    std::atomic<std::uint64_t> untold{0};     // The latest of which nothing will be told.
    std::atomic<std::uint64_t> watermark{0};  // Of `completed`.
    std::atomic<bool> wanted{false};
    std::atomic<bool> elsewhere{false};
    std::atomic<bool> shared{false};
  };
  static constexpr std::size_t kChunkSlots = 1024;
  static constexpr std::size_t kChunks = limits::kHandlesMax / kChunkSlots;

  // nullptr: nothing is known of it.
  Slot* find(Handle event) const noexcept;
  // Its own, made now if need be. nullptr: no memory; then no event counts as never recorded.
  Slot* claim(Handle event) noexcept;

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex claiming_;
  std::atomic<bool> forgetful_{false};  // Some record has found no memory.
};

}  // namespace gpurun::client
