// BulkIn: the place of each chunk, and the receipts to send.
#include "server/bulk/bulk_in.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "server/driver/error_numbers.h"

namespace gpurun::server {

using protocol::BulkHeader;
using protocol::FrameKind;

namespace {

Status refuse(const BulkHeader& header, const char* why) {
  return Status(Code::kProtocol, "transfer " + std::to_string(header.transfer) + ": " + why);
}

}  // namespace

bool BulkIn::Coverage::add(std::uint64_t offset, std::uint64_t bytes) {
  if (offset < through_ || !beyond_.emplace(offset, bytes).second) return false;
  while (!beyond_.empty() && beyond_.begin()->first == through_) {
    through_ += beyond_.begin()->second;
    beyond_.erase(beyond_.begin());
  }
  return true;
}

Result<BulkIn::Landing> BulkIn::claim(const BulkHeader& header, std::size_t bytes) {
  // Chunks lie on a grid, so that none can overlap another.
  const std::uint64_t full =
      std::min<std::uint64_t>(limits::kBulkChunkBytes, header.total - header.offset);
  if (bytes == 0 || header.offset % limits::kBulkChunkBytes != 0 || bytes != full) {
    return refuse(header, "a chunk that is not on the grid");
  }
  const std::lock_guard lock(mutex_);
  Transfer& transfer = transfers_[header.transfer];
  if (transfer.total_known && transfer.total != header.total) {
    return refuse(header, "chunks that disagree about its size");
  }
  if (!transfer.claimed.add(header.offset, bytes)) return refuse(header, "a chunk comes twice");
  transfer.total = header.total;
  transfer.total_known = true;
  Landing landing;
  if (transfer.given_up) return landing;  // It was on its way over another connection.
  if (transfer.kind == Kind::kAbandoned) {
    if (transfer.claimed.through() == transfer.total) transfers_.erase(header.transfer);
    return landing;
  }
  if (transfer.kind == Kind::kWhole) {
    if (!make_whole(transfer)) return landing;
    landing.whole = transfer.whole;
    landing.into = transfer.whole->bytes().data() + header.offset;
    return landing;
  }
  landing.staged = true;
  landing.into = staging_.take();
  if (landing.into == nullptr) return refuse(header, "more bytes than the client has credit for");
  return landing;
}

bool BulkIn::landed(const BulkHeader& header, std::size_t bytes, const Landing& landing) {
  if (landing.into == nullptr) {
    came_.notify_all();
    return true;  // The call may have to report that the bytes cannot be held.
  }
  Says says;
  bool go_on = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = transfers_.find(header.transfer);
    const bool wanted = found != transfers_.end() && !found->second.given_up &&
                        found->second.kind != Kind::kAbandoned;
    if (!wanted) {
      if (landing.staged) staging_.give_back(landing.into);
      return false;
    }
    Transfer& transfer = found->second;
    if (landing.staged) {
      transfer.staged[header.offset] = {landing.into, header.offset, bytes};
      if (transfer.kind == Kind::kWhole) {
        move_to_whole(header.transfer, transfer, says);
      } else {
        go_on = transfer.kind == Kind::kCopy && transfer.given == header.offset;
      }
    } else {
      const std::uint64_t before = transfer.came.through();
      transfer.came.add(header.offset, bytes);
      tell_what_came(header.transfer, transfer, before, says);
    }
    if (transfer.kind == Kind::kWhole) {
      go_on = transfer.failure != 0 || transfer.came.through() == transfer.total;
      if (go_on) came_.notify_all();
    }
  }
  say(says);
  return go_on;
}

void BulkIn::given_up(const BulkHeader& header) {
  {
    const std::lock_guard lock(mutex_);
    const auto at = transfers_.try_emplace(header.transfer).first;
    Transfer& transfer = at->second;
    if (transfer.kind == Kind::kAbandoned) {  // Both sides have ended it.
      transfers_.erase(at);
      return;
    }
    for (const auto& [offset, chunk] : transfer.staged) staging_.give_back(chunk.bytes);
    transfer.staged.clear();
    transfer.given_up = true;
    transfer.failure = kErrorUnknown;
    if (transfer.kind == Kind::kUnnamed) remember_end(header.transfer);
    came_.notify_all();  // Wakes the thread that requested it, because it will never be whole.
  }
  listener_.arrived(listener_.user);
}

int BulkIn::expect_copy(std::uint64_t number, std::uint64_t sequence, std::uint64_t total) {
  const std::lock_guard lock(mutex_);
  Transfer& transfer = transfers_[number];
  if (transfer.kind == Kind::kCopy && transfer.call == sequence) return transfer.failure;
  const bool fits = !transfer.total_known || transfer.total == total;
  if (transfer.kind == Kind::kUnnamed && transfer.call == 0) transfer.call = sequence;
  if (transfer.kind != Kind::kUnnamed || !fits || total == 0) return kErrorInvalidValue;
  transfer.kind = Kind::kCopy;
  transfer.total = total;
  transfer.total_known = true;
  return transfer.failure;
}

int BulkIn::expect_whole(std::uint64_t number, std::uint64_t sequence) {
  Says says;
  bool whole = false;
  {
    const std::lock_guard lock(mutex_);
    Transfer& transfer = transfers_[number];
    if (transfer.kind == Kind::kWhole && transfer.call == sequence) return 0;
    if (transfer.kind != Kind::kUnnamed) return kErrorInvalidValue;
    transfer.kind = Kind::kWhole;
    transfer.call = sequence;
    move_to_whole(number, transfer, says);
    whole = transfer.total_known && transfer.came.through() == transfer.total;
  }
  say(says);
  if (whole) listener_.arrived(listener_.user);
  return 0;
}

// False: the payload cannot be held. The call then fails with the reason.
bool BulkIn::make_whole(Transfer& transfer) {
  if (transfer.whole != nullptr) return true;
  if (transfer.failure != 0 || !transfer.total_known) return false;
  if (transfer.total > limits::kImageBytesMax) {
    transfer.failure = kErrorInvalidValue;
  } else if (transfer.total > kWholeBytesMax - whole_bytes_) {
    transfer.failure = kErrorOutOfMemory;
  } else {
    transfer.whole = WholePayload::create(static_cast<std::size_t>(transfer.total));
    if (transfer.whole == nullptr) transfer.failure = kErrorOutOfMemory;
  }
  if (transfer.whole != nullptr) whole_bytes_ += transfer.total;
  return transfer.whole != nullptr;
}

// Sends a receipt for each chunk by which the bytes without a gap have grown. BulkLanes counts
// receipts before it sends them. The client may have no room for another chunk that would bring the
// next receipt.
void BulkIn::tell_what_came(std::uint64_t number, const Transfer& transfer, std::uint64_t before,
                            Says& says) {
  const std::uint64_t through = transfer.came.through();
  for (std::uint64_t at = before; at < through; at += limits::kBulkChunkBytes) {
    says.emplace_back(FrameKind::kChunkReceipt, BulkHeader{number, through, transfer.total, 0});
  }
}

// Moves the chunks that came before their call was known.
void BulkIn::move_to_whole(std::uint64_t number, Transfer& transfer, Says& says) {
  if (transfer.staged.empty() || !make_whole(transfer)) return;
  const std::uint64_t before = transfer.came.through();
  for (const auto& [offset, chunk] : transfer.staged) {
    std::memcpy(transfer.whole->bytes().data() + offset, chunk.bytes, chunk.size);
    staging_.give_back(chunk.bytes);
    transfer.came.add(offset, chunk.size);
  }
  transfer.staged.clear();
  tell_what_came(number, transfer, before, says);
}

std::optional<BulkIn::Chunk> BulkIn::next(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  if (found == transfers_.end()) return std::nullopt;
  Transfer& transfer = found->second;
  const auto staged = transfer.staged.find(transfer.given);
  if (transfer.kind != Kind::kCopy || staged == transfer.staged.end()) return std::nullopt;
  const Chunk chunk = staged->second;
  transfer.staged.erase(staged);
  transfer.given += chunk.size;
  return chunk;
}

const std::byte* BulkIn::at_hand(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  if (found == transfers_.end() || found->second.kind != Kind::kCopy) return nullptr;
  const auto staged = found->second.staged.find(found->second.given);
  return staged == found->second.staged.end() ? nullptr : staged->second.bytes;
}

bool BulkIn::all_given(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  return found == transfers_.end() || found->second.given == found->second.total;
}

void BulkIn::retired(std::uint64_t number, const Chunk& chunk) {
  staging_.give_back(chunk.bytes);
  Says says;
  {
    const std::lock_guard lock(mutex_);
    const auto found = transfers_.find(number);
    if (found == transfers_.end() || found->second.kind != Kind::kCopy) return;
    Transfer& transfer = found->second;
    transfer.retired += chunk.size;
    says.emplace_back(FrameKind::kChunkReceipt,
                      BulkHeader{number, transfer.retired, transfer.total, 0});
    if (transfer.retired == transfer.total) transfers_.erase(found);
  }
  say(says);
}

int BulkIn::fetch_whole(std::uint64_t number, std::uint64_t sequence,
                        std::shared_ptr<WholePayload>* payload) {
  if (const int result = expect_whole(number, sequence); result != 0) return result;
  listener_.say(listener_.user, FrameKind::kChunkWanted, BulkHeader{number, 0, 0, 0});
  std::unique_lock lock(mutex_);
  int result = 0;
  // The wait ends with the session at the latest.
  came_.wait(lock, [&] {
    result = stopped_ ? int{kErrorUnknown} : take(number, payload);
    return result != 0 || *payload != nullptr;
  });
  return result;
}

void BulkIn::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  came_.notify_all();
}

int BulkIn::take_whole(std::uint64_t number, std::shared_ptr<WholePayload>* payload) {
  const std::lock_guard lock(mutex_);
  return take(number, payload);
}

// With the lock held.
int BulkIn::take(std::uint64_t number, std::shared_ptr<WholePayload>* payload) {
  const auto found = transfers_.find(number);
  if (found == transfers_.end() || found->second.kind != Kind::kWhole) return kErrorInvalidValue;
  Transfer& transfer = found->second;
  if (transfer.failure != 0) return transfer.failure;
  if (!transfer.total_known || transfer.came.through() != transfer.total) return 0;
  *payload = std::move(transfer.whole);
  whole_bytes_ -= transfer.total;
  transfers_.erase(found);
  return 0;
}

void BulkIn::end_call(std::uint64_t number, std::uint64_t sequence) {
  Says says;
  {
    const std::lock_guard lock(mutex_);
    const auto found = transfers_.find(number);
    if (found == transfers_.end() || found->second.call != sequence) return;
    Transfer& transfer = found->second;
    if (transfer.kind == Kind::kAbandoned) return;
    if (transfer.kind == Kind::kCopy && transfer.given == transfer.total) return;
    if (transfer.given_up) {
      if (transfer.whole != nullptr) whole_bytes_ -= transfer.total;
      transfers_.erase(found);
      return;
    }
    abandon(number, transfer, says);
  }
  say(says);
}

void BulkIn::abandon(std::uint64_t number, Transfer& transfer, Says& says) {
  for (const auto& [offset, chunk] : transfer.staged) staging_.give_back(chunk.bytes);
  transfer.staged.clear();
  if (transfer.whole != nullptr) whole_bytes_ -= transfer.total;
  transfer.whole.reset();
  transfer.kind = Kind::kAbandoned;
  says.emplace_back(FrameKind::kChunkAbandoned, BulkHeader{number, 0, transfer.total, 0});
  if (transfer.total_known && transfer.claimed.through() == transfer.total) {
    transfers_.erase(number);
    return;
  }
  remember_end(number);
}

void BulkIn::remember_end(std::uint64_t number) {
  abandoned_.push_back(number);
  if (abandoned_.size() <= kAbandonedMax) return;
  const auto oldest = transfers_.find(abandoned_.front());
  const bool over = oldest != transfers_.end() &&
                    (oldest->second.kind == Kind::kAbandoned ||
                     (oldest->second.given_up && oldest->second.kind == Kind::kUnnamed));
  if (over) transfers_.erase(oldest);
  abandoned_.pop_front();
}

void BulkIn::say(const Says& says) const {
  for (const auto& [kind, header] : says) listener_.say(listener_.user, kind, header);
}

std::size_t BulkIn::remembered() const {
  const std::lock_guard lock(mutex_);
  return transfers_.size();
}

}  // namespace gpurun::server
