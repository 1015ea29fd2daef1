// EventCompletions: what the worker pushed about recorded events, so that a query of a completed
// event needs no round trip.
//
// Any thread; no locks. One slot per index of the handle table.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/handles.h"
#include "protocol/limits.h"

namespace gpurun::client {

class EventCompletions {
 public:
  EventCompletions() = default;
  EventCompletions(const EventCompletions&) = delete;
  EventCompletions& operator=(const EventCompletions&) = delete;
  ~EventCompletions();

  // The call `sequence` records `event`. Before it is committed.
  void recorded(Handle event, std::uint64_t sequence) noexcept;
  // The worker says that the record made by `sequence` is complete, and its bytes are there after
  // `watermark` bulk completions. The receiver.
  void completed(Handle event, std::uint64_t sequence, std::uint64_t watermark) noexcept;
  // The last record of `event` is complete, with `bulk_completions` arrived.
  bool known_complete(Handle event, std::uint64_t bulk_completions) const noexcept;

 private:
  struct Slot {
    std::atomic<Handle> event{0};
    std::atomic<std::uint64_t> recorded{0};
    std::atomic<std::uint64_t> completed{0};
    std::atomic<std::uint64_t> watermark{0};
  };
  static constexpr std::size_t kChunkSlots = 1024;
  static constexpr std::size_t kChunks = limits::kHandlesMax / kChunkSlots;

  Slot* slot(Handle event) const noexcept;

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
};

}  // namespace gpurun::client
