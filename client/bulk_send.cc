// The sending half of Bulk: the window, its slots, and whose turn it is.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "client/bulk.h"

namespace gpurun::client {

using protocol::BulkHeader;
using protocol::FrameKind;

std::byte* Bulk::slot_start(std::size_t slot) const noexcept {
  return window_ + slot * limits::kBulkChunkBytes;
}

bool Bulk::room_for_next(const Outgoing& out) const noexcept {
  if (out.filled - out.retired >= kTransferWindowBytes) return false;
  if (out.in_turn) return !free_slots_.empty();
  if (free_slots_.size() > kReservedSlots + kTurnSlots) return true;
  if (free_slots_.size() <= kTurnSlots) return false;
  for (const auto& [transfer, each] : outgoing_) {
    if (each->on_demand && !each->later) continue;  // It may never go.
    if (each->in_turn) continue;
    if (each->filled < each->source.size()) return each.get() == &out;
  }
  return false;
}

// With the lock held.
std::uint64_t Bulk::add(Outgoing out) {
  out.transfer = mint();
  const std::uint64_t transfer = out.transfer;
  outgoing_.emplace(transfer, std::make_shared<Outgoing>(std::move(out)));
  return transfer;
}

std::uint64_t Bulk::open(ByteView source) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Outgoing out;
  out.source = source;
  return add(std::move(out));
}

std::uint64_t Bulk::open_in_turn(ByteView source) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Outgoing out;
  out.source = source;
  out.on_demand = out.in_turn = true;
  return add(std::move(out));
}

std::uint64_t Bulk::offer(std::shared_ptr<const Bytes> payload) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (payload->size() > kOfferedBytesMax - offered_bytes_) return 0;
  offered_bytes_ += payload->size();
  Outgoing out;
  out.source = *payload;
  out.on_demand = true;
  out.offered = std::move(payload);
  return add(std::move(out));
}

Status Bulk::wanted(std::uint64_t transfer, std::uint64_t watermark) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (transfer > last_transfer_.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "the worker wants what was never begun");
  }
  const auto found = outgoing_.find(transfer);
  if (found == outgoing_.end()) return {};  // Abandoned meanwhile, on another connection.
  if (!found->second->on_demand) {
    return Status(Code::kProtocol, "the worker wants what was not offered");
  }
  found->second->later = true;
  found->second->after = watermark;
  to_send_.notify_all();
  return {};
}

// With the lock held.
bool Bulk::still_reads(ByteView memory) const noexcept {
  const auto overlaps = [memory](ByteView other) {
    return other.data() < memory.data() + memory.size() &&
           memory.data() < other.data() + other.size();
  };
  return std::any_of(reading_.begin(), reading_.end(), overlaps) ||
         std::any_of(outgoing_.begin(), outgoing_.end(), [overlaps](const auto& each) {
           const Outgoing& out = *each.second;
           return out.filled < out.source.size() && overlaps(out.source);
         });
}

bool Bulk::reads(ByteView memory) const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return still_reads(memory);
}

void Bulk::await_read(ByteView memory) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  // Bounded by the life of the session: end() wakes it.
  read_.wait(lock, [&] { return ended_ || !still_reads(memory); });
}

// With the lock held.
void Bulk::drop(std::map<std::uint64_t, std::shared_ptr<Outgoing>>::iterator at) {
  if (at->second->offered != nullptr) offered_bytes_ -= at->second->source.size();
  outgoing_.erase(at);
  read_.notify_all();
}

void Bulk::forget(std::uint64_t transfer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = outgoing_.find(transfer); found != outgoing_.end()) drop(found);
  room_.notify_all();  // Another one is the oldest now.
  to_send_.notify_all();
}

// Takes a slot and copies the transfer's next bytes into it, with the lock given up meanwhile. The
// chunk counts as filled at once, so that two sending threads fill different ones.
Bulk::Chunk Bulk::fill_next(std::unique_lock<std::mutex>& lock, Outgoing& out) {
  Chunk chunk;
  chunk.slot = free_slots_.back();
  free_slots_.pop_back();
  chunk.offset = out.filled;
  chunk.bytes = static_cast<std::size_t>(
      std::min<std::uint64_t>(limits::kBulkChunkBytes, out.source.size() - out.filled));
  out.filled += chunk.bytes;
  const ByteView piece = out.source.subspan(static_cast<std::size_t>(chunk.offset), chunk.bytes);
  reading_.push_back(piece);
  lock.unlock();
  std::memcpy(slot_start(chunk.slot), piece.data(), piece.size());
  pieces_read_.fetch_add(1, std::memory_order_acq_rel);
  lock.lock();
  // A piece that two threads read at once stands there twice.
  reading_.erase(std::find_if(reading_.begin(), reading_.end(), [piece](ByteView each) {
    return each.data() == piece.data() && each.size() == piece.size();
  }));
  read_.notify_all();
  if (out.over) {
    free_slots_.push_back(chunk.slot);
    room_.notify_all();
  }
  return chunk;
}

void Bulk::free_slot(std::size_t slot) {
  for (Sending& each : sending_) {
    if (each.slot != slot) continue;
    each.retired = true;
    return;
  }
  free_slots_.push_back(slot);
}

bool Bulk::send(std::uint64_t transfer) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = outgoing_.find(transfer);
  if (found == outgoing_.end()) return !ended_;  // Abandoned: the worker says why on the log.
  const std::shared_ptr<Outgoing> out = found->second;
  while (out->filled < out->source.size()) {
    // Bounded by the life of the session: end() wakes it.
    room_.wait(lock, [&] { return ended_ || out->over || room_for_next(*out); });
    if (ended_) return false;
    if (out->over) return true;
    const Chunk chunk = fill_next(lock, *out);
    if (out->over) return true;
    out->chunks.push_back(chunk);
    ++out->unsent;
    to_send_.notify_one();
  }
  if (free_slots_.size() <= kReservedSlots + kTurnSlots) {
    room_.notify_all();  // Another one is the oldest now.
    to_send_.notify_all();
  }
  return !ended_;
}

bool Bulk::send_later(std::uint64_t transfer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) return false;
  const auto found = outgoing_.find(transfer);
  if (found == outgoing_.end()) return true;
  found->second->later = true;
  to_send_.notify_all();
  return true;
}

// A sending thread may read some of it now.
bool Bulk::may_fill(const Outgoing& out) const noexcept {
  return out.later && out.after <= completed_through_ && out.filled < out.source.size() &&
         room_for_next(out);
}

// The first transfer after the one that had its turn last which can go on.
std::shared_ptr<Bulk::Outgoing> Bulk::next_to_send() {
  const auto ready = [this](const Outgoing& out) { return out.unsent != 0 || may_fill(out); };
  const auto start = outgoing_.upper_bound(last_served_);
  for (auto at = start; at != outgoing_.end(); ++at) {
    if (ready(*at->second)) return at->second;
  }
  for (auto at = outgoing_.begin(); at != start; ++at) {
    if (ready(*at->second)) return at->second;
  }
  return nullptr;
}

Status Bulk::send_next(std::unique_lock<std::mutex>& lock, transport::Connection& connection) {
  struct {
    protocol::FrameHeader frame;
    BulkHeader bulk;
  } head;
  static_assert(sizeof head == protocol::kFrameHeaderBytes + protocol::kBulkHeaderBytes);
  ByteView payload;
  std::size_t slot = 0;
  if (!receipts_due_.empty()) {
    head.frame.kind = FrameKind::kChunkReceipt;
    head.bulk = receipts_due_.begin()->second;
    receipts_due_.erase(receipts_due_.begin());
  } else {
    const std::shared_ptr<Outgoing> out = next_to_send();
    if (out == nullptr) return {};
    last_served_ = out->transfer;
    Chunk chunk;
    if (out->unsent != 0) {
      chunk = out->chunks[out->chunks.size() - out->unsent--];
    } else {
      chunk = fill_next(lock, *out);
      if (out->over) return {};
      out->chunks.push_back(chunk);
    }
    // Before it is sent: the receipt may come before send() returns.
    out->sent += chunk.bytes;
    head.frame.kind = FrameKind::kChunk;
    head.bulk.transfer = out->transfer;
    head.bulk.offset = chunk.offset;
    head.bulk.total = out->source.size();
    slot = chunk.slot;
    payload = ByteView(slot_start(slot), chunk.bytes);
  }
  head.frame.payload_bytes =
      static_cast<std::uint32_t>(protocol::kBulkHeaderBytes + payload.size());
  if (!payload.empty()) sending_.push_back({slot, false});
  lock.unlock();
  const ByteView parts[] = {bytes_of(head), payload};
  // Unbounded: a dead peer is noticed on the log channel, which shuts this one down.
  Status status = connection.send(parts, Deadline::never());
  lock.lock();
  if (payload.empty()) return status;
  const auto sent = std::find_if(sending_.begin(), sending_.end(),
                                 [slot](const Sending& each) { return each.slot == slot; });
  const bool retired = sent->retired;
  sending_.erase(sent);
  if (retired) {
    free_slots_.push_back(slot);
    room_.notify_all();
    to_send_.notify_all();
  }
  return status;
}

void Bulk::run_sender(Channel& channel) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    to_send_.wait(lock,
                  [this] { return ended_ || !receipts_due_.empty() || next_to_send() != nullptr; });
    if (ended_) return;
    Status status = send_next(lock, *channel.connection);
    if (!status.ok()) {
      lock.unlock();
      listener_.failed(listener_.user, std::move(status));
      return;
    }
  }
}

Status Bulk::retire(const BulkHeader& header) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = outgoing_.find(header.transfer);
  if (found == outgoing_.end()) return {};  // Retired or abandoned before.
  Outgoing& out = *found->second;
  if (header.total != out.source.size() || header.offset > out.sent) {
    return Status(Code::kProtocol, "a receipt for bytes that were never sent");
  }
  while (!out.chunks.empty() && out.chunks.size() > out.unsent &&
         out.chunks.front().offset + out.chunks.front().bytes <= header.offset) {
    out.retired += out.chunks.front().bytes;
    free_slot(out.chunks.front().slot);
    out.chunks.pop_front();
  }
  if (out.retired == out.source.size()) drop(found);
  room_.notify_all();
  to_send_.notify_all();  // A later one may have room now.
  return {};
}

void Bulk::abandon(std::uint64_t transfer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = outgoing_.find(transfer);
  if (found == outgoing_.end()) return;
  Outgoing& out = *found->second;
  out.over = true;
  for (const Chunk& chunk : out.chunks) free_slot(chunk.slot);
  out.chunks.clear();
  out.unsent = 0;
  drop(found);
  room_.notify_all();
  to_send_.notify_all();
}

}  // namespace gpurun::client
