#include "client/event_completions.h"

#include <new>

namespace gpurun::client {

EventCompletions::~EventCompletions() {
  for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
}

EventCompletions::Slot* EventCompletions::slot(Handle event) const noexcept {
  const std::size_t index = event % limits::kHandlesMax;  // The handle's index bits.
  Slot* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : &chunk[index % kChunkSlots];
}

void EventCompletions::recorded(Handle event, std::uint64_t sequence) noexcept {
  Slot* mine = slot(event);
  if (mine == nullptr) {
    Slot* fresh = new (std::nothrow) Slot[kChunkSlots];
    if (fresh == nullptr) return;  // Its queries then make a round trip.
    Slot* expected = nullptr;
    auto& chunk = chunks_[event % limits::kHandlesMax / kChunkSlots];
    if (!chunk.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) delete[] fresh;
    mine = slot(event);
  }
  if (mine->event.load(std::memory_order_acquire) != event) {
    // The index's earlier event has ended; its numbers are all below this one.
    mine->recorded.store(sequence, std::memory_order_relaxed);
    mine->event.store(event, std::memory_order_release);
    return;
  }
  std::uint64_t last = mine->recorded.load(std::memory_order_relaxed);
  while (last < sequence &&
         !mine->recorded.compare_exchange_weak(last, sequence, std::memory_order_release)) {
  }
}

void EventCompletions::completed(Handle event, std::uint64_t sequence,
                                 std::uint64_t watermark) noexcept {
  Slot* of = slot(event);
  if (of == nullptr || of->event.load(std::memory_order_acquire) != event) return;
  if (of->completed.load(std::memory_order_relaxed) >= sequence) return;
  of->watermark.store(watermark, std::memory_order_relaxed);
  of->completed.store(sequence, std::memory_order_release);
}

bool EventCompletions::known_complete(Handle event, std::uint64_t bulk_completions) const noexcept {
  const Slot* of = slot(event);
  if (of == nullptr || of->event.load(std::memory_order_acquire) != event) return false;
  const std::uint64_t completed = of->completed.load(std::memory_order_acquire);
  return completed >= of->recorded.load(std::memory_order_acquire) &&
         bulk_completions >= of->watermark.load(std::memory_order_relaxed);
}

}  // namespace gpurun::client
