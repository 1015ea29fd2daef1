// Numbers transfers in the order in which the device is done with them.
#include "server/bulk/bulk_out.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/driver/error_numbers.h"

namespace gpurun::server {

using protocol::BulkHeader;
using protocol::FrameKind;

int BulkOut::open(std::uint64_t number, std::uint64_t sequence, std::uint64_t total) {
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = transfers_.try_emplace(number);
  Transfer& transfer = at->second;
  if (!fresh) return transfer.call == sequence ? 0 : kErrorInvalidValue;
  transfer.call = sequence;
  transfer.total = total;
  return 0;
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
  chunk.bytes = staging_.take();
  if (chunk.bytes == nullptr) {
    starving_ = true;
    return {};
  }
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
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = transfers_.find(number);
    if (found == transfers_.end()) return;
    Transfer& transfer = found->second;
    transfer.copied += chunk.size;
    if (transfer.failure == 0) transfer.failure = result;
    const bool last = transfer.copied == transfer.total;
    if (last) --unnumbered_;
    if (transfer.failure == 0) {
      BulkHeader header{number, chunk.offset, transfer.total, 0};
      if (last) header.watermark = ++numbered_;
      transfer.sent += chunk.size;
      transfer.unreceived.push_back(chunk);
      // Under the lock: the numbers go out in their order.
      listener_.say(listener_.user, FrameKind::kChunk, header, {chunk.bytes, chunk.size});
    } else {
      staging_.give_back(chunk.bytes);
      room = std::exchange(starving_, false);
      if (!std::exchange(transfer.abandoned, true)) abandon(number, transfer.total);
    }
    forget_when_done(found);
  }
  if (room) listener_.room(listener_.user);
}

void BulkOut::abandon(std::uint64_t number, std::uint64_t total) {
  listener_.say(listener_.user, FrameKind::kChunkAbandoned, {number, 0, total, 0}, {});
}

void BulkOut::forget_when_done(Transfers::iterator at) {
  const Transfer& transfer = at->second;
  if (transfer.closed && transfer.copied == transfer.given && transfer.unreceived.empty()) {
    transfers_.erase(at);
  }
}

void BulkOut::end_call(std::uint64_t number, std::uint64_t sequence, std::uint64_t total,
                       int result) {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  if (found == transfers_.end()) {
    if (result != 0) abandon(number, total);
    return;
  }
  Transfer& transfer = found->second;
  if (transfer.call != sequence) return;
  if (transfer.failure == 0) transfer.failure = result;
  if (transfer.failure != 0 && !std::exchange(transfer.abandoned, true)) abandon(number, total);
  transfer.closed = true;
  forget_when_done(found);
}

int BulkOut::result(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  return found == transfers_.end() ? kErrorUnknown : found->second.failure;
}

std::byte* BulkOut::take_slot() {
  const std::lock_guard lock(mutex_);
  std::byte* slot = staging_.take();
  if (slot == nullptr) starving_ = true;
  return slot;
}

void BulkOut::give_slot(std::byte* slot) {
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    staging_.give_back(slot);
    room = std::exchange(starving_, false);
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

// A receipt may come before the sender is out of the connection, and a hostile one at any time.
// True: somebody waits for the room.
bool BulkOut::free_slots(Transfers::iterator at) {
  Transfer& transfer = at->second;
  bool freed = false;
  while (!transfer.unreceived.empty() && transfer.unreceived.front().gone &&
         transfer.received + transfer.unreceived.front().size <= transfer.acknowledged) {
    transfer.received += transfer.unreceived.front().size;
    staging_.give_back(transfer.unreceived.front().bytes);
    transfer.unreceived.pop_front();
    freed = true;
  }
  forget_when_done(at);
  return freed && std::exchange(starving_, false);
}

void BulkOut::gone(std::uint64_t number, std::uint64_t offset) {
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = transfers_.find(number);
    if (found == transfers_.end()) return;
    for (Chunk& chunk : found->second.unreceived) {
      if (chunk.offset == offset) chunk.gone = true;
    }
    room = free_slots(found);
  }
  if (room) listener_.room(listener_.user);
}

Status BulkOut::receipt(const BulkHeader& header) {
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = transfers_.find(header.transfer);
    if (found == transfers_.end()) return {};  // A second one for its last bytes.
    Transfer& transfer = found->second;
    if (header.total != transfer.total || header.offset > transfer.sent) {
      return Status(Code::kProtocol, "transfer " + std::to_string(header.transfer) +
                                         ": a receipt for bytes that were never sent");
    }
    transfer.acknowledged = std::max(transfer.acknowledged, header.offset);
    room = free_slots(found);
  }
  if (room) listener_.room(listener_.user);
  return {};
}

std::size_t BulkOut::remembered() const {
  const std::lock_guard lock(mutex_);
  return transfers_.size();
}

}  // namespace gpurun::server
