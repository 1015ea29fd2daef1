// Bulk, sending half: the window, its slots, and the order of the transfers.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "client/bulk/bulk.h"
#include "client/log/sent_in_place.h"
#include "client/process/core_time.h"
#include "client/progress/receiving_role.h"

namespace gpurun::client {

using protocol::BulkHeader;
using protocol::FrameKind;

std::byte* Bulk::slot_start(std::size_t slot) const noexcept {
  return window_ + slot * limits::kBulkChunkBytes;
}

// Returns whether the window has a slot for `out`. Reserved slots are for the oldest transfer, or
// for transfers in turn.
bool Bulk::has_slot_for(const Outgoing& out) const noexcept {
  if (out.in_turn) return !free_slots_.empty();
  if (free_slots_.size() > kReservedSlots + kTurnSlots) return true;
  if (free_slots_.size() <= kTurnSlots) return false;
  for (const auto& [transfer, each] : outgoing_) {
    if (each->on_demand && !each->later) continue;  // It may never go.
    if (each->in_turn) continue;
    if (!each->taken()) return each.get() == &out;
  }
  return false;
}

// Bytes that are copied before the head has gone never take the slots that the head needs.
bool Bulk::may_copy(const Outgoing& out) const noexcept {
  if (out.filled - std::max(out.retired, out.head_end) >= kTransferWindowBytes) return false;
  if (out.head != out.head_end) return free_slots_.size() > kReservedSlots + kTurnSlots;
  return has_slot_for(out);
}

// With the lock held.
std::uint64_t Bulk::add(Outgoing out, std::optional<Line> line) {
  constexpr std::uint64_t kAlone = ~std::uint64_t{0};
  out.transfer = mint();
  out.line = line.value_or(Line{kAlone, out.transfer});
  const std::uint64_t transfer = out.transfer;
  const auto added = std::make_shared<Outgoing>(std::move(out));
  outgoing_.emplace(transfer, added);
  if (!added->on_demand) lines_[added->line].push_back(added);
  return transfer;
}

std::uint64_t Bulk::open(ByteView source, std::optional<Line> line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Outgoing out;
  out.source = source;
  return add(std::move(out), line);
}

std::uint64_t Bulk::open_in_turn(ByteView source, std::optional<Line> line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Outgoing out;
  out.source = source;
  out.on_demand = out.in_turn = true;
  return add(std::move(out), line);
}

std::uint64_t Bulk::offer(std::shared_ptr<const Bytes> payload) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (payload->size() > kOfferedBytesMax - offered_bytes_) return 0;
  offered_bytes_ += payload->size();
  Outgoing out;
  out.source = *payload;
  out.on_demand = true;
  out.offered = std::move(payload);
  return add(std::move(out), {});
}

Status Bulk::wanted(std::uint64_t transfer, std::uint64_t watermark) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (transfer > last_transfer_.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "the worker wants what was never begun");
  }
  const auto found = outgoing_.find(transfer);
  if (found == outgoing_.end()) return {};  // Abandoned, over another connection.
  if (!found->second->on_demand) {
    return Status(Code::kProtocol, "the worker wants what was not offered");
  }
  // Its stream waits for this transfer alone. It goes before transfers that go ahead of their turn.
  if (!found->second->later) lines_[found->second->line].push_front(found->second);
  begin_later(*found->second);
  found->second->after = watermark;
  to_send_.notify_all();
  return {};
}

namespace {

constexpr ConnectionCount::Span kNoTime{0};

bool overlap(ByteView one, ByteView other) {
  return one.data() < other.data() + other.size() && other.data() < one.data() + one.size();
}

}  // namespace

// With the lock held, as the next.
bool Bulk::is_read(ByteView memory) const noexcept {
  return std::any_of(reading_.begin(), reading_.end(),
                     [memory](const Reading& each) { return overlap(each.piece, memory); });
}

bool Bulk::still_reads(ByteView memory) const noexcept {
  return is_read(memory) ||
         std::any_of(outgoing_.begin(), outgoing_.end(), [memory](const auto& each) {
           return !each.second->taken() && overlap(each.second->source, memory);
         });
}

bool Bulk::reads(ByteView memory) const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return still_reads(memory);
}

void Bulk::await_read(ByteView memory) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  // Bounded by the life of the session: end() wakes it, and a send in progress ends with its
  // connection.
  read_.wait(lock, [&] { return ended_ ? !is_read(memory) : !still_reads(memory); });
}

bool Bulk::sources_are_read(std::uint64_t last) const noexcept {
  const auto reads_now = [last](const Reading& each) { return each.transfer <= last; };
  const auto still_read = [last](const auto& each) {
    return each.first <= last && each.second->offered == nullptr && !each.second->taken();
  };
  if (std::any_of(reading_.begin(), reading_.end(), reads_now)) return false;
  return ended_ || std::none_of(outgoing_.begin(), outgoing_.end(), still_read);
}

void Bulk::await_sources_read(std::uint64_t last) noexcept {
  const NoCancellation uncancelled;
  std::unique_lock<std::mutex> lock(mutex_);
  read_.wait(lock, [&] { return sources_are_read(last); });
}

bool Bulk::await_sources_read(std::uint64_t last, std::chrono::milliseconds at_most) noexcept {
  const NoCancellation uncancelled;
  std::unique_lock<std::mutex> lock(mutex_);
  return read_.wait_for(lock, at_most, [&] { return sources_are_read(last); });
}

// With the lock held.
void Bulk::drop(std::map<std::uint64_t, std::shared_ptr<Outgoing>>::iterator at) {
  note_retired(*at->second, at->second->sent - at->second->retired);
  if (at->second->offered != nullptr) offered_bytes_ -= at->second->source.size();
  at->second->dropped = true;
  outgoing_.erase(at);
  read_.notify_all();
}

void Bulk::forget(std::uint64_t transfer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = outgoing_.find(transfer); found != outgoing_.end()) drop(found);
  room_.notify_all();  // Another one is the oldest now.
  to_send_.notify_all();
}

void Bulk::begin_later(Outgoing& out) {
  out.later = true;
  out.head_end = out.filled = out.source.size();
}

std::size_t Bulk::chunk_bytes(const Outgoing& out, std::uint64_t offset) {
  return static_cast<std::size_t>(
      std::min<std::uint64_t>(limits::kBulkChunkBytes, out.source.size() - offset));
}

// Takes a slot, which must be free. The slot is the chunk's credit even if its memory is not used.
Bulk::Chunk Bulk::take_chunk(const Outgoing& out, std::uint64_t offset) {
  Chunk chunk;
  chunk.slot = free_slots_.back();
  free_slots_.pop_back();
  window_used_ = true;
  chunk.offset = offset;
  chunk.bytes = chunk_bytes(out, offset);
  return chunk;
}

void Bulk::begin_read(Outgoing& out, ByteView piece) {
  ++out.reading;
  reading_.push_back({out.transfer, piece});
}

void Bulk::end_read(Outgoing& out, ByteView piece) {
  --out.reading;
  // A piece that two threads read at once is listed twice.
  reading_.erase(std::find_if(reading_.begin(), reading_.end(), [&out, piece](const Reading& each) {
    return each.transfer == out.transfer && each.piece.data() == piece.data() &&
           each.piece.size() == piece.size();
  }));
  read_.notify_all();
}

// Copies the next bytes behind the head. Releases the lock while it copies.
void Bulk::copy_next(std::unique_lock<std::mutex>& lock, Outgoing& out) {
  const Chunk chunk = take_chunk(out, out.filled);
  out.filled += chunk.bytes;
  const ByteView piece = out.source.subspan(static_cast<std::size_t>(chunk.offset), chunk.bytes);
  begin_read(out, piece);
  lock.unlock();
  std::memcpy(slot_start(chunk.slot), piece.data(), piece.size());
  pieces_read_.fetch_add(1, std::memory_order_acq_rel);
  lock.lock();
  end_read(out, piece);
  if (!out.over) {
    out.ready.push_back(chunk);
    to_send_.notify_one();
    return;
  }
  free_slots_.push_back(chunk.slot);
  room_.notify_all();
}

void Bulk::trim() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint64_t begun = last_transfer_.load(std::memory_order_relaxed);
  const bool rests = std::exchange(begun_before_trim_, begun) == begun;
  const bool idle = free_slots_.size() == limits::kBulkWindowBytes / limits::kBulkChunkBytes;
  if (!rests || !idle || !sending_.empty() || !std::exchange(window_used_, false)) return;
  madvise(window_, limits::kBulkWindowBytes, MADV_DONTNEED);
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
  if (found == outgoing_.end()) return !ended_;  // Abandoned: the log says why.
  const std::shared_ptr<Outgoing> out = found->second;
  // A source that fits the window is copied whole and never waits for the worker. Of a larger
  // source, only the end is copied.
  const std::uint64_t kept = in_memory_ && out->source.size() > kTransferWindowBytes
                                 ? kCopiedBesideMemoryBytes
                                 : kTransferWindowBytes;
  const std::uint64_t over_window =
      out->source.size() - std::min<std::uint64_t>(kept, out->source.size());
  out->head_end = out->filled = (over_window + limits::kBulkChunkBytes - 1) /
                                limits::kBulkChunkBytes * limits::kBulkChunkBytes;
  if (out->head_end != 0) to_send_.notify_all();
  const auto is_over = [&] { return ended_ || out->over || out->taken(); };
  while (!is_over()) {
    // Bounded by the life of the session: end() wakes it.
    room_.wait(lock,
               [&] { return is_over() || (out->filled < out->source.size() && may_copy(*out)); });
    if (!is_over()) copy_next(lock, *out);
  }
  // Waits even if the session has ended: the send ends with its connection.
  read_.wait(lock, [&] { return out->reading == 0; });
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
  begin_later(*found->second);
  to_send_.notify_all();
  return true;
}

// Returns whether some of it may go now. Its chunks go in order, the head first.
bool Bulk::may_send(const Outgoing& out) const noexcept {
  if (out.sent - out.retired >= kTransferWindowBytes) return false;
  if (out.head == out.head_end) return !out.ready.empty();
  return out.after <= completed_through_ && has_slot_for(out);
}

// Returns the first transfer that is not all handed over, if it can go on.
std::shared_ptr<Bulk::Outgoing> Bulk::first_to_send(InLine& line) {
  while (!line.empty() && line.front()->handed_over()) line.pop_front();
  return !line.empty() && may_send(*line.front()) ? line.front() : nullptr;
}

// Returns the next transfer of the first line that can go on, after the line that had the last
// turn.
std::shared_ptr<Bulk::Outgoing> Bulk::next_to_send() {
  auto at = lines_.upper_bound(last_served_);
  for (std::size_t left = lines_.size(); left != 0; --left) {
    if (at == lines_.end()) at = lines_.begin();
    if (auto found = first_to_send(at->second)) return found;
    at = at->second.empty() ? lines_.erase(at) : std::next(at);
  }
  return nullptr;
}

Status Bulk::send_receipts(std::unique_lock<std::mutex>& lock, transport::Connection& connection) {
  const protocol::Receipts::Batch batch = receipts_.take();
  lock.unlock();
  Status status = protocol::send_bulk_words(connection, FrameKind::kChunkReceipt, batch.headers());
  lock.lock();
  return status;
}

// Takes the next chunk that may go, if it fits beside the chunks that go already.
Bulk::Taken Bulk::take_next(const protocol::ChunksToSend& beside) {
  Taken taken;
  const std::shared_ptr<Outgoing> out = next_to_send();
  if (out == nullptr) return taken;
  taken.in_place = out->head != out->head_end;
  const std::size_t bytes =
      taken.in_place ? chunk_bytes(*out, out->head) : out->ready.front().bytes;
  if (!beside.fits(bytes)) return taken;
  last_served_ = out->line;
  if (taken.in_place) {
    taken.chunk = take_chunk(*out, out->head);
    out->head += bytes;
    taken.payload = out->source.subspan(static_cast<std::size_t>(taken.chunk.offset), bytes);
    begin_read(*out, taken.payload);
  } else {
    taken.chunk = out->ready.front();
    out->ready.pop_front();
    taken.payload = ByteView(slot_start(taken.chunk.slot), bytes);
  }
  // Before it is sent: the receipt may come before send() returns.
  out->sent += bytes;
  out->chunks.push_back(taken.chunk);
  sending_.push_back({taken.chunk.slot, false});
  note_sent(*out, bytes);
  taken.out = out;
  return taken;
}

void Bulk::has_gone(const Taken& taken) {
  if (taken.in_place) {
    end_read(*taken.out, taken.payload);
    if (taken.out->taken()) room_.notify_all();
  }
  const auto sent = std::find_if(sending_.begin(), sending_.end(), [&taken](const Sending& each) {
    return each.slot == taken.chunk.slot;
  });
  const bool retired = sent->retired;
  sending_.erase(sent);
  if (!retired) return;
  free_slots_.push_back(taken.chunk.slot);
  room_.notify_all();
  to_send_.notify_all();
}

Status Bulk::send_next(std::unique_lock<std::mutex>& lock, Channel& channel) {
  constexpr std::size_t kMost = protocol::ChunksToSend::kChunksMax;
  std::array<Taken, kMost> together;
  std::size_t count = 0;
  const bool measures = count_.has_value() && ++sends_ % kTurnsPerLook == 0;
  ConnectionCount::Span core_time = kNoTime;
  for (; count < kMost; ++count) {
    const Taken taken = together[count] = take_next(channel.chunks);
    if (taken.out == nullptr) break;
    lock.unlock();
    if (measures && count == 0) core_time = core_time_of_thread();
    const BulkHeader header{taken.out->transfer, taken.chunk.offset, taken.out->source.size(), 0};
    channel.chunks.add(channel.packer, header, taken.payload);
    lock.lock();
  }
  if (count == 0) return {};
  lock.unlock();
  std::array<std::optional<SentInPlace>, kMost> sent_in_place;
  for (std::size_t i = 0; i < count; ++i) {
    if (together[i].in_place) sent_in_place[i].emplace(together[i].payload, pieces_read_);
  }
  Status status = channel.chunks.send_rest(channel.packer, *channel.connection);
  for (auto& each : sent_in_place) each.reset();
  const ConnectionCount::Span worked = measures ? core_time_of_thread() - core_time : kNoTime;
  lock.lock();
  if (measures) count_->worked(kTurnsPerLook * worked);
  for (std::size_t i = 0; i < count; ++i) has_gone(together[i]);
  return status;
}

void Bulk::run_sender(Channel& channel) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (!in_use(channel)) {
      unused_.wait(lock, [&] { return ended_ || in_use(channel); });
      if (ended_) return;
    }
    // A sender that is no longer in use forwards the wake-up that it consumed.
    to_send_.wait(lock, [&] {
      return ended_ || !in_use(channel) || receipts_.due() || next_to_send() != nullptr;
    });
    if (ended_) return;
    if (!in_use(channel)) {
      to_send_.notify_one();
      continue;
    }
    Status status =
        receipts_.due() ? send_receipts(lock, *channel.connection) : send_next(lock, channel);
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
  const std::uint64_t before = out.retired;
  while (!out.chunks.empty() &&
         out.chunks.front().offset + out.chunks.front().bytes <= header.offset) {
    out.retired += out.chunks.front().bytes;
    free_slot(out.chunks.front().slot);
    out.chunks.pop_front();
  }
  note_retired(out, out.retired - before);
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
  for (const Chunk& chunk : out.ready) free_slots_.push_back(chunk.slot);
  out.chunks.clear();
  out.ready.clear();
  drop(found);
  room_.notify_all();
  to_send_.notify_all();
}

}  // namespace gpurun::client
