// EventCompletions: what the client knows of recorded events, so that asking about one costs no
// round trip: what the worker told, and what it will tell unasked.
//
// A `wanted` event's records carry kFlagTell, and the worker tells the end of each. That is one
// that the program has asked about once (query, synchronise); and of any other the first records,
// since it may be asked about, unless most events of this program never are: one that only streams
// wait for soon costs nothing. An event that may be recorded by something else than a record of
// ours (a graph, a launch attribute, another process) is never known here.
//
// That an event is *not* complete is known here as long as nothing comes: the program learns how
// far the device is by what comes from the worker alone, so an event that was not complete, or not
// recorded, when the last such thing came may be called so still (docs/adr/0009).
//
// Of an event that the program has waited for it is kept where it was recorded last: what it waits
// for may be an upload, whose bytes have long been read (docs/adr/0036).
//
// Any thread; no locks but at an event's first use. One slot per index of the handle table.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

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

  // Records of an event that are told without anybody's having asked about it.
  static constexpr unsigned kUnaskedRecords = 4;
  // Events that were recorded and that nobody has asked about: so many, and so many for each that
  // somebody did. Beyond no event is told of before somebody asks. Each stream whose events are
  // told takes a thread of the worker while it works (server/worker/completions.h).
  static constexpr std::size_t kUnaskedEvents = 32;
  static constexpr std::size_t kUnaskedForEachAsked = 4;

  // Where a record of an event stands.
  struct Place {
    std::uint64_t record = 0;
    Handle stream = 0;  // As CallSite::stream.
    std::chrono::steady_clock::time_point posted;
    bool ends_upload = false;  // StreamProgress::ends_upload(), then.
  };

  // Whether the next record of `event` shall be told.
  bool wanted(Handle event) const noexcept;
  // The call `sequence` records `event`, with kFlagTell if `told`. Before it is committed.
  // True: the program has waited for the event, so place() wants to know where.
  bool recorded(Handle event, std::uint64_t sequence, bool told) noexcept;
  void place(Handle event, const Place& place) noexcept;
  // Of the record `record` of `event`, if place() was told of it and of no later one.
  std::optional<Place> place_of(Handle event, std::uint64_t record) noexcept;
  // The program waits for `event`: the places of its records are wanted from now on.
  void waited(Handle event) noexcept;
  // `event` may be recorded without a call of recorded() from now on.
  void recorded_elsewhere(Handle event) noexcept;
  // Other processes have `event` too, from now on.
  void share(Handle event) noexcept;
  bool is_shared(Handle event) const noexcept;
  // Some event ever was shared.
  bool any_shared() const noexcept { return any_shared_.load(std::memory_order_acquire); }

  // The program asks about `event`, which is wanted from now on. Returns its last record.
  std::uint64_t asked(Handle event) noexcept;
  // Of the record `record` of `event` or a later one, with `bulk_completions` arrived.
  State state(Handle event, std::uint64_t record, std::uint64_t bulk_completions) const noexcept;

  // The worker says that the record made by `sequence` is complete, and its bytes are there after
  // `watermark` bulk completions; with a `result` that it will not say. Who reads the log.
  void completed(Handle event, std::uint64_t sequence, int result,
                 std::uint64_t watermark) noexcept;

  // The program may learn something now that it did not know: before it can.
  void something_comes() noexcept { came_.fetch_add(1, std::memory_order_acq_rel); }
  // How much has come.
  std::uint64_t came() const noexcept { return came_.load(std::memory_order_acquire); }
  // The worker has answered that `event` is not complete, when asked after `came` had come.
  void not_ready(Handle event, std::uint64_t came) noexcept;
  // Nothing has come since `event` was recorded, or was last answered to be not complete. Of one
  // whose last record is kComing: it may be called not complete.
  bool nothing_came(Handle event) const noexcept;

 private:
  // Begins as zero bytes (make_zeroed()).
  struct Slot {
    std::atomic<Handle> event{0};
    std::atomic<std::uint64_t> recorded{0};   // Its last record; 0: none.
    std::atomic<std::uint64_t> told{0};       // The last one with kFlagTell.
    std::atomic<std::uint64_t> completed{0};  // The latest that is complete.
    std::atomic<std::uint64_t> untold{0};     // The latest of which nothing will be told.
    std::atomic<std::uint64_t> watermark{0};  // Of `completed`.
    std::atomic<std::uint64_t> came{0};       // When it was last known not to be complete.
    std::atomic<unsigned> unasked{0};         // Records while nobody asked; up to kUnaskedRecords.
    std::atomic<bool> asked{false};
    std::atomic<bool> elsewhere{false};
    std::atomic<bool> shared{false};
    std::atomic<bool> waited{false};
    std::atomic_flag placing;  // Held while `place` is read or written.
    Place place;
  };
  static constexpr std::size_t kChunkSlots = 1024;
  static constexpr std::size_t kChunks = limits::kHandlesMax / kChunkSlots;

  // nullptr: nothing is known of it.
  Slot* find(Handle event) const noexcept;
  // Of a slot's place, unless another thread has it just now: then this one does without, since
  // what is not known is asked about.
  class Placing {
   public:
    explicit Placing(Slot& slot) noexcept
        : slot_(slot), has_(!slot.placing.test_and_set(std::memory_order_acquire)) {}
    ~Placing() {
      if (has_) slot_.placing.clear(std::memory_order_release);
    }
    Placing(const Placing&) = delete;
    Placing& operator=(const Placing&) = delete;
    bool has() const noexcept { return has_; }

   private:
    Slot& slot_;
    const bool has_;
  };

  // Its own, made now if need be. nullptr: no memory; then no event counts as never recorded.
  Slot* claim(Handle event) noexcept;

  std::atomic<std::uint64_t> came_{0};
  std::atomic<std::size_t> asked_events_{0};
  std::atomic<std::size_t> unasked_events_{0};
  std::atomic<bool> any_shared_{false};
  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex claiming_;
  std::atomic<bool> forgetful_{false};  // Some record has found no memory.
};

}  // namespace gpurun::client
