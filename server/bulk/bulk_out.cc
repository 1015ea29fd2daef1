// BulkOut: numbers transfers in the order in which the device finishes them.
#include "server/bulk/bulk_out.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/driver/error_numbers.h"

namespace gpurun::server {

using protocol::BulkHeader;
using protocol::FrameKind;

namespace {

std::size_t counts(std::size_t bytes) { return std::max(bytes, kBytesAheadOfChunk); }

}  // namespace

int BulkOut::open(std::uint64_t number, std::uint64_t sequence, std::uint64_t total,
                  unsigned lanes) {
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = transfers_.try_emplace(number);
  Transfer& transfer = at->second;
  if (!fresh) return transfer.call == sequence ? 0 : kErrorInvalidValue;
  transfer.call = sequence;
  transfer.total = total;
  transfer.written = lanes == kWritten;
  transfer.lanes = std::max(lanes, 1U);
  return 0;
}

// With the lock held, as the next functions.
std::byte* BulkOut::take_staging() {
  std::byte* const slot = staging_.take();
  if (slot == nullptr) lacks_slots_ = true;
  return slot;
}

// Returns true once after a copy has found no slot, or enough bytes on their way.
bool BulkOut::may_go_on() {
  const std::size_t least = kBytesAheadMin + more_lanes_ * limits::kBulkChunkBytes;
  if (!starving_ || (unsent_ > least && !lacks_slots_)) return false;
  starving_ = lacks_slots_ = false;
  more_lanes_ = 0;
  return true;
}

// Each connection has one chunk that it sends and one behind it. Bytes ahead for several
// connections do not delay a copy that has nothing on its way.
bool BulkOut::may_ask(const Transfer& transfer) const {
  if (transfer.asked == 0 && transfer.unsent == 0 && unsent_ >= kBytesAheadMax) {
    return spread_unsent_ != 0;
  }
  const std::size_t more = 2 * (transfer.lanes - 1);
  const bool scarce = staging_.free_slots() < kStagingOutBytes / limits::kBulkChunkBytes / 2;
  return unsent_ < kBytesAheadMax + more * limits::kBulkChunkBytes &&
         transfer.asked < kChunksAskedMax + (scarce ? 0 : more);
}

BulkOut::Chunk BulkOut::next(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  if (found == transfers_.end()) return {};
  Transfer& transfer = found->second;
  Chunk chunk;
  chunk.offset = transfer.given;
  chunk.size = static_cast<std::size_t>(
      std::min<std::uint64_t>(limits::kBulkChunkBytes, transfer.total - transfer.given));
  if (chunk.size == 0) return {};
  if (may_ask(transfer)) chunk.bytes = take_staging();
  if (chunk.bytes == nullptr) {
    starving_ = true;
    more_lanes_ = std::max(more_lanes_, transfer.lanes - 1);
    return {};
  }
  ++transfer.asked;
  transfer.given += chunk.size;
  if (transfer.given == transfer.total) ++unnumbered_;
  return chunk;
}

bool BulkOut::all_given(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  return found == transfers_.end() || found->second.given == found->second.total;
}

void BulkOut::copied(std::uint64_t number, const Chunk& chunk, int result) {
  BulkHeader header{number, chunk.offset, 0, 0};
  bool goes = false;
  bool room = false;
  unsigned lanes = 1;
  std::unique_lock saying(saying_);
  {
    const std::lock_guard lock(mutex_);
    const auto found = transfers_.find(number);
    if (found == transfers_.end()) return;
    Transfer& transfer = found->second;
    header.total = transfer.total;
    transfer.copied += chunk.size;
    --transfer.asked;
    if (transfer.failure == 0) transfer.failure = result;
    const bool last = transfer.copied == transfer.total;
    if (last) --unnumbered_;
    goes = transfer.failure == 0;
    if (goes) {
      if (last) {
        header.watermark = ++numbered_;
      } else if (spreads_) {
        header.watermark = numbered_;
      }
      lanes = transfer.written ? kWritten : transfer.lanes;
      transfer.said += chunk.size;
      ++transfer.unsent;
      if (transfer.lanes > 1) ++spread_unsent_;
      unsent_ += counts(chunk.size);
    } else {
      staging_.give_back(chunk.bytes);
      abandon(number, transfer);
    }
    room = may_go_on();
    forget_when_done(found);
  }
  if (goes) {
    listener_.say(listener_.user, FrameKind::kChunk, header, {chunk.bytes, chunk.size}, lanes);
  }
  saying.unlock();
  if (room) listener_.room(listener_.user);
}

// Notifies the client once. If part of the transfer went over several connections, or was written,
// the notice has a number. Later copies to the same place then also come after its end, and so does
// the reply of its call.
void BulkOut::abandon(std::uint64_t number, Transfer& transfer) {
  if (std::exchange(transfer.abandoned, true)) return;
  const bool apart = (transfer.lanes > 1 || transfer.written) && transfer.said != 0;
  const BulkHeader header{number, 0, transfer.total, spreads_ && apart ? ++numbered_ : 0};
  listener_.say(listener_.user, FrameKind::kChunkAbandoned, header, {}, 1);
}

void BulkOut::forget_when_done(Transfers::iterator at) {
  const Transfer& transfer = at->second;
  if (transfer.closed && transfer.copied == transfer.given && transfer.unsent == 0) {
    transfers_.erase(at);
  }
}

void BulkOut::end_call(std::uint64_t number, std::uint64_t sequence, std::uint64_t total,
                       int result) {
  const std::lock_guard saying(saying_);
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  if (found == transfers_.end()) {
    Transfer unknown;
    unknown.total = total;
    if (result != 0) abandon(number, unknown);
    return;
  }
  Transfer& transfer = found->second;
  if (transfer.call != sequence) return;
  if (transfer.failure == 0) transfer.failure = result;
  // A transfer that was sent completely cannot be abandoned. It arrives, and has its number.
  if (transfer.failure != 0 && transfer.said != transfer.total) abandon(number, transfer);
  transfer.closed = true;
  forget_when_done(found);
}

int BulkOut::result(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  return found == transfers_.end() ? kErrorUnknown : found->second.failure;
}

std::byte* BulkOut::take_slot(std::size_t left) {
  const std::lock_guard lock(mutex_);
  std::byte* slot = staging_.free_slots() > left ? take_staging() : nullptr;
  if (slot == nullptr) starving_ = lacks_slots_ = true;
  return slot;
}

void BulkOut::give_slot(std::byte* slot) {
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    staging_.give_back(slot);
    room = std::exchange(starving_, false);
    lacks_slots_ = false;
  }
  if (room) listener_.room(listener_.user);
}

bool BulkOut::numbering_due() const {
  const std::lock_guard lock(mutex_);
  return unnumbered_ != 0;
}

std::uint64_t BulkOut::watermark() const {
  const std::lock_guard lock(mutex_);
  return numbered_;
}

std::uint64_t BulkOut::watermark_said() {
  const std::lock_guard saying(saying_);
  return watermark();
}

bool BulkOut::gone(std::uint64_t number, std::byte* slot, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  staging_.give_back(slot);
  unsent_ -= counts(bytes);
  // A transfer with unsent chunks is always remembered.
  const auto found = transfers_.find(number);
  --found->second.unsent;
  if (found->second.lanes > 1) --spread_unsent_;
  forget_when_done(found);
  return may_go_on();
}

Status BulkOut::receipt(const BulkHeader& header) {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(header.transfer);
  if (found == transfers_.end()) return {};  // All of it has left.
  if (header.total == found->second.total && header.offset <= found->second.said) return {};
  return Status(Code::kProtocol, "transfer " + std::to_string(header.transfer) +
                                     ": a receipt for bytes that were never sent");
}

std::size_t BulkOut::remembered() const {
  const std::lock_guard lock(mutex_);
  return transfers_.size();
}

}  // namespace gpurun::server
