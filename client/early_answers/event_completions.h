// EventCompletions: the client's knowledge of recorded events, with which it answers queries
// without a round trip. It keeps the records that the worker has reported as complete, and those
// that the worker will report without a query.
//
// The records of a `wanted` event carry kFlagTell, and the worker reports the end of each. An event
// is wanted once the program has queried or synchronised it. The first records of any other event
// are wanted too, because the program may query it. That ends if the program never queries most of
// its events. An event that only streams wait for therefore soon costs nothing. An event is never
// known here if anything but our records may record it: a graph, a launch attribute or another
// process.
//
// The program learns of the device's progress only from messages of the worker. An event that was
// not complete, or not recorded, at the last message may count as not complete until the next
// (docs/adr/0009).
//
// If the program has waited for an event, the place of the event's last record is kept. The wait
// may be for an upload with bytes that were read long ago (docs/adr/0036).
//
// Any thread. No locks except at an event's first use. One slot per index of the handle table.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/slot_table.h"
#include "client/log/handles.h"
#include "protocol/limits.h"

namespace gpurun::client {

class EventCompletions {
 public:
  enum class State : std::uint8_t {
    kAsk,       // Only the worker knows.
    kComing,    // The worker reports it unasked.
    kArriving,  // Reported. The bytes before it are still on the way.
    kComplete,  // Also of an event that was never recorded (manual, cuEventQuery).
  };

  EventCompletions() = default;
  EventCompletions(const EventCompletions&) = delete;
  EventCompletions& operator=(const EventCompletions&) = delete;

  // Records of an event that are reported although the program never asked about it.
  static constexpr unsigned kUnaskedRecords = 4;
  // The bound of events that are reported although the program never asked about them. It is
  // kUnaskedEvents, and kUnaskedForEachAsked more for each event that the program has asked about.
  // Beyond the bound an event is reported only once the program asks. Each stream with reported
  // events takes a thread of the worker while it works (server/worker/execution/completions.h).
  static constexpr std::size_t kUnaskedEvents = 32;
  static constexpr std::size_t kUnaskedForEachAsked = 4;

  // The place of a record of an event.
  struct Place {
    std::uint64_t record = 0;
    Handle context = 0;
    Handle stream = 0;  // As CallSite::stream.
    std::chrono::steady_clock::time_point posted;
    bool ends_upload = false;  // StreamProgress::ends_upload() at the record.
  };

  // Returns whether the next record of `event` must carry kFlagTell.
  bool wanted(Handle event) const noexcept;
  // The call `sequence` records `event`, with kFlagTell if `told`. Call it before the record is
  // committed. Returns true if the program has waited for the event. The caller then calls place().
  bool recorded(Handle event, std::uint64_t sequence, bool told) noexcept;
  void place(Handle event, const Place& place) noexcept;
  // Returns the place of the record `record` of `event`, if place() has it and no later one.
  std::optional<Place> place_of(Handle event, std::uint64_t record) noexcept;
  // The program waits for `event`. The places of its records are kept from now on.
  void waited(Handle event) noexcept;
  // `event` may be recorded without a call of recorded() from now on.
  void recorded_elsewhere(Handle event) noexcept;
  // Other processes also have `event` from now on.
  void share(Handle event) noexcept;
  bool is_shared(Handle event) const noexcept;
  // Returns whether any event was ever shared.
  bool any_shared() const noexcept { return any_shared_.load(std::memory_order_acquire); }

  // The program asks about `event`, which is wanted from now on. Returns its last record.
  std::uint64_t asked(Handle event) noexcept;
  // Returns the state of the record `record` of `event`, or of a later one. `bulk_completions` have
  // arrived.
  State state(Handle event, std::uint64_t record, std::uint64_t bulk_completions) const noexcept;

  // The worker reports that the record made by `sequence` is complete. Its bytes are there after
  // `watermark` bulk completions. With a nonzero `result` the worker will not report the end. For
  // the thread that reads the log.
  void completed(Handle event, std::uint64_t sequence, int result,
                 std::uint64_t watermark) noexcept;

  // Call it before the program can learn something new.
  void something_comes() noexcept { came_.fetch_add(1, std::memory_order_acq_rel); }
  // How many times something has come.
  std::uint64_t came() const noexcept { return came_.load(std::memory_order_acquire); }
  // The worker has answered that `event` is not complete. `came` is came() at the question.
  void not_ready(Handle event, std::uint64_t came) noexcept;
  // Returns whether nothing has come since `event` was recorded, or was last answered as not
  // complete. If the last record is kComing, the event then counts as not complete.
  bool nothing_came(Handle event) const noexcept;

 private:
  struct Slot {
    std::atomic<Handle> owner{0};             // The event.
    std::atomic<std::uint64_t> recorded{0};   // Its last record. 0: never recorded.
    std::atomic<std::uint64_t> told{0};       // The last one with kFlagTell.
    std::atomic<std::uint64_t> completed{0};  // The latest that is complete.
    std::atomic<std::uint64_t> untold{0};     // The latest with an end that will not be reported.
    std::atomic<std::uint64_t> watermark{0};  // Of `completed`.
    std::atomic<std::uint64_t> came{0};       // came() when it was last known not to be complete.
    std::atomic<unsigned> unasked{0};         // Records without a query. At most kUnaskedRecords.
    std::atomic<bool> asked{false};
    std::atomic<bool> elsewhere{false};
    std::atomic<bool> shared{false};
    std::atomic<bool> waited{false};
    std::atomic_flag placing;  // Held while `place` is read or written.
    Place place;
  };

  // Exclusive access to a slot's place. If another thread has it, has() is false. This thread then
  // continues without the place, and the client asks the worker.
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

  // Returns the event's slot, and makes it if needed. nullptr: there is no memory, and then no
  // event counts as never recorded.
  Slot* claim(Handle event) noexcept;

  std::atomic<std::uint64_t> came_{0};
  std::atomic<std::size_t> asked_events_{0};
  std::atomic<std::size_t> unasked_events_{0};
  std::atomic<bool> any_shared_{false};
  SlotTable<Slot, limits::kHandlesMax, 1024> slots_;  // Claimed under claiming_.
  std::mutex claiming_;
  std::atomic<bool> forgetful_{false};  // Some record has found no memory.
};

}  // namespace gpurun::client
