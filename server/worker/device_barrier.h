// DeviceBarrier: keeps an answered-early call first on the device. After the call an event is
// recorded in its stream; every other stream waits for that event before its next call. The thread
// that made the call believes it complete: what it asks about the device waits for it, too. So does
// what any thread asks behind a wait for a stream: that one may have told the others.
//
// A free stands in no stream, but behind all the work of its context (docs/adr/0038): its event is
// recorded in a stream of ours, which waits for every stream that has work.
//
// Streams that are capturing stay out of it: an event of ours must not enter the program's graph.
// A stream of ours has taken over what they were given before (outlive()).
// One thread at a time, with the call's context current.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "protocol/record.h"
#include "server/driver/driver_functions.h"

namespace gpurun::server {

class DeviceBarrier {
 public:
  explicit DeviceBarrier(const DriverFunctions& driver) : driver_(driver) {}

  // `stream` (the driver's) is about to get the call of `header`. 0 or the CUresult.
  int before(const protocol::RecordHeader& header, void* stream);
  // Whose questions are asked behind a barrier call: its own lane's, those of all lanes that have
  // its context, or all. kFreed: as kToContext, of frees, whose work may take longer than that of
  // waits: so questions that were asked before a free do not stand behind its event.
  enum class Owed : std::uint8_t { kToLane, kToContext, kToAll, kFreed };
  // The barrier call of `header` is issued in `stream`. 0 or the CUresult.
  int after(const protocol::RecordHeader& header, void* stream, Owed owed);
  // Likewise of a call that stands behind the driver's `event`, and not behind what its stream was
  // given after that: by a stream of ours, in which it stands behind the barrier before, too. Owed
  // to all.
  int after_event(const protocol::RecordHeader& header, void* event);
  // Likewise of a call that stands behind all that `streams`, of its context, have been given. None
  // of them captures.
  int after_streams(const protocol::RecordHeader& header, std::span<void* const> streams);
  // `stream` of `context`, which is current, has work, and is about to be destroyed or to capture:
  // side_of() waits for that work from now on.
  int outlive(std::uint64_t context, void* stream);
  // The stream of ours that waits for such events in that context; null: none does.
  void* side_of(std::uint64_t context) const {
    const auto side = sides_.find(context);
    return side == sides_.end() ? nullptr : side->second;
  }
  struct OwedEvent {
    void* event = nullptr;
    std::uint64_t context = 0;  // The client's.
  };
  // The events behind the answered-early calls that may be incomplete: what `lane` asks about the
  // device, of `context` (0: of any), by the call `sequence` is asked behind those before it. Where
  // a later one has taken the place of such a one, behind that.
  std::vector<OwedEvent> owed_to(std::uint32_t lane, std::uint64_t context, std::uint64_t sequence);
  // The last barrier, while it may be incomplete: its call, and the event behind it.
  struct Pending {
    protocol::RecordHeader call;
    void* event = nullptr;
    std::vector<void*> streams;  // Of after_streams().
  };
  const Pending* pending() const noexcept { return pending_ == nullptr ? nullptr : &last_; }
  // `event` of pending() stands for that call until another is kept or its context ends.
  void keep(void* event) noexcept { kept_ = event; }
  const void* kept() const noexcept { return kept_; }
  // The client's `context` has ended, with its events.
  void forget(std::uint64_t context);

 private:
  using StreamKey = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>;
  static StreamKey key_of(const protocol::RecordHeader& header);

  struct Mark {
    void* event = nullptr;    // Recorded again and again.
    void* other = nullptr;    // In its place while it is kept.
    bool owed = false;        // May be incomplete.
    std::uint64_t since = 0;  // The first call since it was not.
  };
  using MarkKey = std::tuple<std::uint32_t, std::uint64_t, Owed>;  // Lane, context.

  // There is a barrier that may be incomplete: asks the driver.
  bool stands();
  int make_side(std::uint64_t context, void** side);
  // `side` waits for what `stream` has been given so far.
  int join(std::uint64_t context, void* side, void* stream);
  // The barrier of `header` is what `stream` has been given so far.
  int mark(const protocol::RecordHeader& header, void* stream, Owed owed);

  const DriverFunctions& driver_;
  std::map<MarkKey, Mark> marks_;
  std::map<std::uint64_t, void*> sides_;  // By context: streams of ours, for after_event() etc.
  std::map<std::uint64_t, void*> joins_;  // Likewise: an event that is recorded again and again.
  void* pending_ = nullptr;               // The last barrier's event, while it may be incomplete.
  Pending last_;                          // Likewise, whatever became of it.
  const void* kept_ = nullptr;            // See keep().
  std::set<StreamKey> behind_;            // Streams that wait for it already.
};

}  // namespace gpurun::server
