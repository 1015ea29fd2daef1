// DeviceBarrier: the order on the device behind calls that were answered early.
//
// An event is recorded in the stream of such a call. Every other stream waits for that event before
// its next call. The thread that made the call believes that it is complete. Its queries about the
// device therefore wait for the event, too. After an early answer to a wait for a stream the
// queries of every thread wait. The lane that was answered may have notified the others.
//
// A free has no stream. It follows all the work of its context (docs/adr/0038). Its event is
// recorded in a side stream of the worker, which waits for every stream that has work.
//
// Capturing streams get no event, because it would enter the program's graph. A side stream has
// taken over the work that they had before (outlive()). One thread at a time, with the context of
// the call current.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "protocol/log/record.h"
#include "server/driver/driver_functions.h"

namespace gpurun::server {

class DeviceBarrier {
 public:
  explicit DeviceBarrier(const DriverFunctions& driver) : driver_(driver) {}

  // The driver's `stream` is about to get the call of `header`. Returns 0 or the CUresult.
  int before(const protocol::RecordHeader& header, void* stream);
  // The lanes that wait for a barrier call in their queries: its own lane, all lanes that have its
  // context, or all. kFreed is kToContext for a free. The work before a free may take longer than
  // that before a wait. So queries that came before the free do not wait for its event.
  enum class Owed : std::uint8_t { kToLane, kToContext, kToAll, kFreed };
  // The barrier call of `header` is issued in `stream`. Returns 0 or the CUresult.
  int after(const protocol::RecordHeader& header, void* stream, Owed owed);
  // As after(), for a call that follows the driver's `event` and not the later work of its stream.
  // The barrier is in a side stream, where it also follows the barrier before. All lanes wait for
  // it.
  int after_event(const protocol::RecordHeader& header, void* event);
  // As after(), for a call that follows all work so far of `streams`, which belong to its context
  // and do not capture.
  int after_streams(const protocol::RecordHeader& header, std::span<void* const> streams);
  // `stream` of the current `context` has work and is about to be destroyed or to capture. From now
  // on side_of() waits for that work.
  int outlive(std::uint64_t context, void* stream);
  // The side stream that waits for such work in the context. nullptr: there is no such work.
  void* side_of(std::uint64_t context) const {
    const auto side = sides_.find(context);
    return side == sides_.end() ? nullptr : side->second;
  }
  struct OwedEvent {
    void* event = nullptr;
    std::uint64_t context = 0;  // The client's.
  };
  // The events behind calls that were answered early and may be incomplete. The call `sequence` of
  // `lane` queries the device about `context` (0: about any) and waits for these of earlier calls.
  // A later barrier call may have replaced such an event, and its event is then returned.
  // kAnyLane: those of every lane, because a thread may have notified another one.
  static constexpr std::uint32_t kAnyLane = ~std::uint32_t{0};
  std::vector<OwedEvent> owed_to(std::uint32_t lane, std::uint64_t context, std::uint64_t sequence);
  // The last barrier while it may be incomplete: its call, and the event behind it.
  struct Pending {
    protocol::RecordHeader call;
    void* event = nullptr;
    std::vector<void*> streams;  // The streams of after_streams().
  };
  const Pending* pending() const noexcept { return pending_ == nullptr ? nullptr : &last_; }
  // `event` of pending() represents that call until another event is kept or its context ends.
  void keep(void* event) noexcept { kept_ = event; }
  const void* kept() const noexcept { return kept_; }
  // The client's `context` has ended together with its events.
  void forget(std::uint64_t context);

 private:
  using StreamKey = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>;
  static StreamKey key_of(const protocol::RecordHeader& header);

  struct Mark {
    void* event = nullptr;    // Recorded again and again.
    void* other = nullptr;    // Replaces `event` while that is kept.
    bool owed = false;        // May be incomplete.
    std::uint64_t since = 0;  // The first call since `owed` was false.
  };
  using MarkKey = std::tuple<std::uint32_t, std::uint64_t, Owed>;  // Lane, context, kind.

  // Returns whether a barrier may be incomplete, and asks the driver.
  bool stands();
  int make_side(std::uint64_t context, void** side);
  // `side` waits for the work that `stream` has been given so far.
  int join(std::uint64_t context, void* side, void* stream);
  // Makes the work so far of `stream` the barrier of `header`.
  int mark(const protocol::RecordHeader& header, void* stream, Owed owed);

  const DriverFunctions& driver_;
  std::map<MarkKey, Mark> marks_;
  std::map<std::uint64_t, void*> sides_;  // By context: side streams, see make_side().
  std::map<std::uint64_t, void*> joins_;  // By context: an event that is recorded again and again.
  void* pending_ = nullptr;               // The last barrier's event, while it may be incomplete.
  Pending last_;                          // The last barrier, complete or not.
  const void* kept_ = nullptr;            // See keep().
  std::set<StreamKey> behind_;            // Streams that already wait for pending_.
};

}  // namespace gpurun::server
