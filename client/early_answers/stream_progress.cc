// StreamProgress: the numbers of each stream and context, in slots by the handle's index.
#include "client/early_answers/stream_progress.h"

#include <algorithm>

#include "base/raise.h"
#include "protocol/log/record.h"

namespace gpurun::client {
namespace {

std::uint64_t value_of(const std::atomic<std::uint64_t>& number) noexcept {
  return number.load(std::memory_order_acquire);
}

bool is_created(Handle stream) noexcept { return stream > protocol::kStreamPerThread; }

}  // namespace

StreamProgress::Slot* StreamProgress::claim(Handle handle) noexcept {
  if (Slot* mine = slots_.find(handle); mine != nullptr) return mine;
  const std::lock_guard<std::mutex> lock(claiming_);
  // The index's earlier owner has ended. A thread that still asks about it finds another owner's.
  Slot* const slot = slots_.claim(handle, [](Slot& mine) {
    for (auto* number :
         {&mine.issued, &mine.done, &mine.quiet_issued, &mine.record_issued, &mine.wait_issued,
          &mine.told_done, &mine.others_issued, &mine.all_done, &mine.context}) {
      number->store(0, std::memory_order_relaxed);
    }
    mine.quiet_pieces.store(0, std::memory_order_relaxed);
  });
  if (slot == nullptr) forgetful_.store(true, std::memory_order_release);
  return slot;
}

CommandLog::Marks StreamProgress::marks(Handle context, Handle stream, Work work) noexcept {
  CommandLog::Marks marks{};
  if (context != 0 && (stream != 0 || work != Work::kNone)) {
    if (Slot* slot = claim(context); slot != nullptr) {
      marks[0] = stream >= protocol::kStreamPerThread ? &slot->others_issued : &slot->issued;
    }
  }
  Slot* const slot = is_created(stream) && work != Work::kNone ? claim(stream) : nullptr;
  if (slot == nullptr) return marks;
  if (context != 0 && slot->context.load(std::memory_order_relaxed) != context) {
    slot->context.store(context, std::memory_order_release);
  }
  switch (work) {
    case Work::kQuiet:
      marks[1] = &slot->quiet_issued;
      break;
    case Work::kRecord:
      marks[1] = &slot->record_issued;
      break;
    case Work::kStreamWait:
      marks[1] = &slot->wait_issued;
      break;
    case Work::kAny:
    case Work::kNone:
      marks[1] = &slot->issued;
  }
  if (work == Work::kQuiet || work == Work::kRecord) {
    slot->quiet_pieces.fetch_add(1, std::memory_order_relaxed);
  }
  return marks;
}

void StreamProgress::issued_anywhere(std::uint64_t sequence) noexcept {
  raise(anywhere_issued_, sequence);
}

void StreamProgress::complete(Waits waits, Handle context, Handle stream,
                              std::uint64_t sequence) noexcept {
  if (waits == Waits::kNot) return;
  // A wait for a stream also waits for every copy that was answered early. A wait for a context
  // covers that context only.
  if (waits == Waits::kForStream) raise(waited_, sequence);
  const bool whole = waits == Waits::kForContext;
  // Nothing is kept here for per-thread streams. Each lane keeps its own (Lane::OwnStream).
  if (!whole && stream == protocol::kStreamPerThread) return;
  Slot* slot = slots_.find(!whole && is_created(stream) ? stream : context);
  if (slot == nullptr) return;
  raise(whole ? slot->all_done : slot->done, sequence);
  slot->quiet_pieces.store(0, std::memory_order_relaxed);
}

bool StreamProgress::complete(Handle context) const noexcept {
  if (slots_.find(context) != nullptr) return idle(Waits::kForContext, context, 0);
  return value_of(anywhere_issued_) == 0 && !forgetful_.load(std::memory_order_acquire);
}

bool StreamProgress::complete_in_stream(Handle stream) const noexcept {
  const Slot* const own = slots_.find(stream);
  if (own == nullptr || forgetful_.load(std::memory_order_acquire)) return false;
  const Slot* const of_context = slots_.find(value_of(own->context));
  const std::uint64_t all_done = of_context == nullptr ? 0 : value_of(of_context->all_done);
  const std::uint64_t done = std::max({value_of(own->done), value_of(own->told_done), all_done});
  return value_of(own->issued) <= done && last_of(*own) <= done;
}

bool StreamProgress::complete_in_legacy_stream(Handle context) const noexcept {
  const Slot* const of_context = slots_.find(context);
  if (of_context == nullptr) return !forgetful_.load(std::memory_order_acquire);
  return value_of(of_context->issued) <=
         std::max({value_of(of_context->done), value_of(of_context->told_done),
                   value_of(of_context->all_done)});
}

bool StreamProgress::may_work(Handle context, Handle stream) const noexcept {
  if (is_created(stream)) return slots_.find(stream) != nullptr && !complete_in_stream(stream);
  return stream == protocol::kStreamPerThread ? !complete(context)
                                              : !complete_in_legacy_stream(context);
}

Handle StreamProgress::context_of(Handle stream) const noexcept {
  const Slot* const own = slots_.find(stream);
  return own == nullptr ? 0 : value_of(own->context);
}

std::uint64_t StreamProgress::last_issued(Handle context) const noexcept {
  if (forgetful_.load(std::memory_order_acquire)) return ~std::uint64_t{0};
  const std::uint64_t anywhere = value_of(anywhere_issued_);
  const Slot* const slot = slots_.find(context);
  return slot == nullptr
             ? anywhere
             : std::max({value_of(slot->issued), value_of(slot->others_issued), anywhere});
}

std::uint64_t StreamProgress::last_issued_in(Handle stream) const noexcept {
  if (forgetful_.load(std::memory_order_acquire)) return ~std::uint64_t{0};
  const Slot* const own = slots_.find(stream);
  return own == nullptr ? 0 : std::max(value_of(own->issued), last_of(*own));
}

std::uint64_t StreamProgress::last_issued_in(Handle context, Handle stream) const noexcept {
  if (is_created(stream)) return last_issued_in(stream);
  if (forgetful_.load(std::memory_order_acquire)) return ~std::uint64_t{0};
  const Slot* const of_context = slots_.find(context);
  return of_context == nullptr ? 0 : value_of(of_context->issued);
}

bool StreamProgress::complete_up_to(Handle context, Handle stream,
                                    std::uint64_t sequence) const noexcept {
  if (stream == protocol::kStreamPerThread) return false;
  const Slot* const of_context = slots_.find(context);
  const Slot* const own = is_created(stream) ? slots_.find(stream) : of_context;
  std::uint64_t done = of_context == nullptr ? 0 : value_of(of_context->all_done);
  if (own != nullptr) done = std::max({done, value_of(own->done), value_of(own->told_done)});
  return sequence <= done;
}

std::uint64_t StreamProgress::last_early_copy() const noexcept {
  return value_of(early_copy_) >> kLaneBits;
}

bool StreamProgress::idle(Waits waits, Handle context, Handle stream) const noexcept {
  const Slot* const of_context = slots_.find(context);
  if (of_context == nullptr || forgetful_.load(std::memory_order_acquire)) return false;
  const std::uint64_t all_done = value_of(of_context->all_done);
  if (waits == Waits::kForStream && is_created(stream)) {
    const Slot* const own = slots_.find(stream);
    if (own == nullptr) return false;
    const std::uint64_t done = std::max(value_of(own->done), all_done);
    return value_of(own->issued) <= done && last_of(*own) <= done;
  }
  const std::uint64_t legacy_done = std::max(value_of(of_context->done), all_done);
  if (value_of(of_context->issued) > legacy_done) return false;
  // The legacy stream waits for the context's other streams, except non-blocking ones.
  const bool legacy = waits == Waits::kForStream && stream < protocol::kStreamPerThread;
  if (legacy) return value_of(of_context->others_issued) <= legacy_done;
  return value_of(of_context->others_issued) <= all_done && value_of(anywhere_issued_) <= all_done;
}

// Returns the last call, except those of kAny and kNone.
std::uint64_t StreamProgress::last_of(const Slot& own) noexcept {
  return std::max(
      {value_of(own.quiet_issued), value_of(own.record_issued), value_of(own.wait_issued)});
}

bool StreamProgress::no_others_copy(std::uint32_t lane) const noexcept {
  // Every wait also waits for such a copy. A wait that has succeeded since proves that the copy
  // ended.
  const std::uint64_t copy = value_of(early_copy_);
  const bool of_lane = (copy & ((std::uint64_t{1} << kLaneBits) - 1)) == lane;
  return copy == 0 || of_lane || copy >> kLaneBits < value_of(waited_);
}

bool StreamProgress::may_wait_early(std::uint32_t lane, Handle context,
                                    Handle stream) const noexcept {
  const Slot* const of_context = slots_.find(context);
  const Slot* const own = is_created(stream) ? slots_.find(stream) : nullptr;
  if (of_context == nullptr || own == nullptr || forgetful_.load(std::memory_order_acquire)) {
    return false;
  }
  const std::uint64_t done = std::max(value_of(own->done), value_of(of_context->all_done));
  return value_of(own->issued) <= done && value_of(own->wait_issued) <= done &&
         own->quiet_pieces.load(std::memory_order_relaxed) <= kQuietMax && no_others_copy(lane);
}

bool StreamProgress::ends_upload(Handle stream) const noexcept {
  const Slot* const own = is_created(stream) ? slots_.find(stream) : nullptr;
  return own != nullptr &&
         value_of(own->quiet_issued) > std::max(value_of(own->issued), value_of(own->wait_issued));
}

void StreamProgress::told(Handle context, Handle stream, std::uint64_t sequence) noexcept {
  if (stream == protocol::kStreamPerThread) return;
  if (Slot* slot = slots_.find(is_created(stream) ? stream : context); slot != nullptr)
    raise(slot->told_done, sequence);
}

bool StreamProgress::may_wait_for_upload(std::uint32_t lane, Handle context, Handle stream,
                                         std::uint64_t record) const noexcept {
  const Slot* const of_context = slots_.find(context);
  const Slot* const own = is_created(stream) ? slots_.find(stream) : nullptr;
  if (of_context == nullptr || own == nullptr || forgetful_.load(std::memory_order_acquire)) {
    return false;
  }
  const std::uint64_t done =
      std::max({value_of(own->done), value_of(own->told_done), value_of(of_context->all_done)});
  return value_of(own->issued) <= done && last_of(*own) > record && no_others_copy(lane);
}

void StreamProgress::copied_early(std::uint32_t lane, std::uint64_t sequence) noexcept {
  raise(early_copy_, sequence << kLaneBits | lane);
}

}  // namespace gpurun::client
