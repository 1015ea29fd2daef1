// EventCompletions: what is known of each event, in slots by the event's index.
#include "client/early_answers/event_completions.h"

#include "base/raise.h"

namespace gpurun::client {
EventCompletions::Slot* EventCompletions::claim(Handle event) noexcept {
  if (Slot* mine = slots_.find(event); mine != nullptr) return mine;
  const std::lock_guard<std::mutex> lock(claiming_);
  // The index's earlier event has ended. Its numbers are all below this event's, so late reports
  // about it change nothing.
  Slot* const slot = slots_.claim(event, [](Slot& mine) {
    for (auto* number : {&mine.recorded, &mine.told, &mine.completed, &mine.untold, &mine.came}) {
      number->store(0, std::memory_order_relaxed);
    }
    mine.unasked.store(0, std::memory_order_relaxed);
    mine.asked.store(false, std::memory_order_relaxed);
    mine.elsewhere.store(false, std::memory_order_relaxed);
    mine.shared.store(false, std::memory_order_relaxed);
    mine.waited.store(false, std::memory_order_relaxed);
  });
  if (slot == nullptr) forgetful_.store(true, std::memory_order_release);
  return slot;
}

bool EventCompletions::wanted(Handle event) const noexcept {
  const Slot* slot = slots_.find(event);
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
  Slot* slot = slots_.find(event);
  if (slot == nullptr) return;
  const Placing placing(*slot);
  if (placing.has() && place.record > slot->place.record) slot->place = place;
}

std::optional<EventCompletions::Place> EventCompletions::place_of(Handle event,
                                                                  std::uint64_t record) noexcept {
  Slot* slot = slots_.find(event);
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
  const Slot* slot = slots_.find(event);
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
  const Slot* slot = slots_.find(event);
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
  Slot* slot = slots_.find(event);
  if (slot == nullptr) return;
  if (result != 0) return raise(slot->untold, sequence);
  if (slot->completed.load(std::memory_order_relaxed) >= sequence) return;
  slot->watermark.store(watermark, std::memory_order_relaxed);
  slot->completed.store(sequence, std::memory_order_release);
}

void EventCompletions::not_ready(Handle event, std::uint64_t came) noexcept {
  if (Slot* slot = slots_.find(event); slot != nullptr) raise(slot->came, came);
}

bool EventCompletions::nothing_came(Handle event) const noexcept {
  const Slot* slot = slots_.find(event);
  return slot != nullptr && slot->came.load(std::memory_order_acquire) == came();
}

}  // namespace gpurun::client
