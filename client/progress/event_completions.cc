// EventCompletions: slots by the event's index, in chunks that are made at first use.
#include "client/progress/event_completions.h"

#include "base/zeroed_array.h"

namespace gpurun::client {
namespace {

void raise(std::atomic<std::uint64_t>& to, std::uint64_t value) noexcept {
  std::uint64_t last = to.load(std::memory_order_relaxed);
  while (last < value && !to.compare_exchange_weak(last, value, std::memory_order_acq_rel)) {
  }
}

}  // namespace

EventCompletions::~EventCompletions() {
  for (auto& chunk : chunks_) free_zeroed(chunk.load(std::memory_order_relaxed));
}

EventCompletions::Slot* EventCompletions::find(Handle event) const noexcept {
  const std::size_t index = event % limits::kHandlesMax;  // The handle's index bits.
  Slot* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
  if (chunk == nullptr) return nullptr;
  Slot* slot = &chunk[index % kChunkSlots];
  return slot->event.load(std::memory_order_acquire) == event ? slot : nullptr;
}

EventCompletions::Slot* EventCompletions::claim(Handle event) noexcept {
  if (Slot* mine = find(event); mine != nullptr) return mine;
  const std::lock_guard<std::mutex> lock(claiming_);
  if (Slot* mine = find(event); mine != nullptr) return mine;
  const std::size_t index = event % limits::kHandlesMax;
  auto& place = chunks_[index / kChunkSlots];
  Slot* chunk = place.load(std::memory_order_relaxed);
  if (chunk == nullptr) {
    chunk = make_zeroed<Slot>(kChunkSlots);
    if (chunk == nullptr) {
      forgetful_.store(true, std::memory_order_release);
      return nullptr;
    }
    place.store(chunk, std::memory_order_release);
  }
  // The index's earlier event has ended. Its numbers are all below this event's, so late reports
  // about it change nothing.
  Slot* slot = &chunk[index % kChunkSlots];
  slot->event.store(0, std::memory_order_relaxed);
  for (auto* number :
       {&slot->recorded, &slot->told, &slot->completed, &slot->untold, &slot->came}) {
    number->store(0, std::memory_order_relaxed);
  }
  slot->unasked.store(0, std::memory_order_relaxed);
  slot->asked.store(false, std::memory_order_relaxed);
  slot->elsewhere.store(false, std::memory_order_relaxed);
  slot->shared.store(false, std::memory_order_relaxed);
  slot->waited.store(false, std::memory_order_relaxed);
  slot->event.store(event, std::memory_order_release);
  return slot;
}

bool EventCompletions::wanted(Handle event) const noexcept {
  const Slot* slot = find(event);
  if (slot != nullptr) {
    if (slot->elsewhere.load(std::memory_order_relaxed)) return false;
    if (slot->asked.load(std::memory_order_relaxed)) return true;
    if (slot->unasked.load(std::memory_order_relaxed) >= kUnaskedRecords) return false;
  }
  return unasked_events_.load(std::memory_order_relaxed) <
         kUnaskedEvents + kUnaskedForEachAsked * asked_events_.load(std::memory_order_relaxed);
}

bool EventCompletions::recorded(Handle event, std::uint64_t sequence, bool told) noexcept {
  Slot* slot = claim(event);
  if (slot == nullptr) return false;
  raise(slot->came, came());
  if (told) raise(slot->told, sequence);
  raise(slot->recorded, sequence);
  if (slot->asked.load(std::memory_order_relaxed)) {
    return slot->waited.load(std::memory_order_relaxed);
  }
  const unsigned unasked = slot->unasked.load(std::memory_order_relaxed);
  if (unasked == kUnaskedRecords) return false;
  // Two threads that record one event at once may miscount. The count only feeds a guess.
  slot->unasked.store(unasked + 1, std::memory_order_relaxed);
  if (unasked == 0) unasked_events_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void EventCompletions::place(Handle event, const Place& place) noexcept {
  Slot* slot = find(event);
  if (slot == nullptr) return;
  const Placing placing(*slot);
  if (placing.has() && place.record > slot->place.record) slot->place = place;
}

std::optional<EventCompletions::Place> EventCompletions::place_of(Handle event,
                                                                  std::uint64_t record) noexcept {
  Slot* slot = find(event);
  if (slot == nullptr || !slot->waited.load(std::memory_order_relaxed)) return {};
  const Placing placing(*slot);
  if (!placing.has() || slot->place.record != record || record == 0) return {};
  return slot->place;
}

void EventCompletions::waited(Handle event) noexcept {
  if (Slot* slot = claim(event); slot != nullptr) {
    slot->waited.store(true, std::memory_order_relaxed);
  }
}

void EventCompletions::recorded_elsewhere(Handle event) noexcept {
  if (Slot* slot = claim(event); slot != nullptr) {
    slot->elsewhere.store(true, std::memory_order_release);
  }
}

void EventCompletions::share(Handle event) noexcept {
  any_shared_.store(true, std::memory_order_release);
  recorded_elsewhere(event);
  if (Slot* slot = claim(event); slot != nullptr) {
    slot->shared.store(true, std::memory_order_release);
  }
}

bool EventCompletions::is_shared(Handle event) const noexcept {
  const Slot* slot = find(event);
  return slot != nullptr && slot->shared.load(std::memory_order_acquire);
}

std::uint64_t EventCompletions::asked(Handle event) noexcept {
  Slot* slot = claim(event);
  if (slot == nullptr) return 0;
  if (!slot->asked.load(std::memory_order_relaxed) &&
      !slot->asked.exchange(true, std::memory_order_relaxed)) {
    if (slot->unasked.exchange(0, std::memory_order_relaxed) != 0) {
      unasked_events_.fetch_sub(1, std::memory_order_relaxed);
    }
    asked_events_.fetch_add(1, std::memory_order_relaxed);
  }
  return slot->recorded.load(std::memory_order_acquire);
}

EventCompletions::State EventCompletions::state(Handle event, std::uint64_t record,
                                                std::uint64_t bulk_completions) const noexcept {
  const Slot* slot = find(event);
  if (slot == nullptr || slot->elsewhere.load(std::memory_order_acquire)) return State::kAsk;
  if (record == 0) {
    return forgetful_.load(std::memory_order_acquire) ? State::kAsk : State::kComplete;
  }
  if (slot->completed.load(std::memory_order_acquire) >= record) {
    const bool arrived = bulk_completions >= slot->watermark.load(std::memory_order_relaxed);
    return arrived ? State::kComplete : State::kArriving;
  }
  if (slot->untold.load(std::memory_order_acquire) >= record) return State::kAsk;
  return slot->told.load(std::memory_order_acquire) >= record ? State::kComing : State::kAsk;
}

void EventCompletions::completed(Handle event, std::uint64_t sequence, int result,
                                 std::uint64_t watermark) noexcept {
  Slot* slot = find(event);
  if (slot == nullptr) return;
  if (result != 0) return raise(slot->untold, sequence);
  if (slot->completed.load(std::memory_order_relaxed) >= sequence) return;
  slot->watermark.store(watermark, std::memory_order_relaxed);
  slot->completed.store(sequence, std::memory_order_release);
}

void EventCompletions::not_ready(Handle event, std::uint64_t came) noexcept {
  if (Slot* slot = find(event); slot != nullptr) raise(slot->came, came);
}

bool EventCompletions::nothing_came(Handle event) const noexcept {
  const Slot* slot = find(event);
  return slot != nullptr && slot->came.load(std::memory_order_acquire) == came();
}

}  // namespace gpurun::client
