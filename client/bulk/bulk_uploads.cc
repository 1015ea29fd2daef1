// BulkUploads: opens and ends transfers, copies what the program may reuse, and waits for reads.
#include "client/bulk/bulk_uploads.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client/process/no_cancellation.h"

namespace gpurun::client {

using protocol::BulkHeader;

std::uint64_t BulkUploads::add(Outgoing out, std::optional<Line> line) {
  const std::uint64_t transfer = out.transfer = state_.mint();
  state_.outgoing.add(std::move(out), line);
  return transfer;
}

std::uint64_t BulkUploads::open(ByteView source, std::optional<Line> line) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  Outgoing out;
  out.source = source;
  return add(std::move(out), line);
}

std::uint64_t BulkUploads::open_in_turn(ByteView source, std::optional<Line> line) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  Outgoing out;
  out.source = source;
  out.on_demand = out.in_turn = true;
  return add(std::move(out), line);
}

std::uint64_t BulkUploads::open_pulled(ByteView source, std::optional<Line> line) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  Outgoing out;
  out.source = source;
  out.on_demand = out.in_turn = out.pulled = true;
  return add(std::move(out), line);
}

std::uint64_t BulkUploads::offer(std::shared_ptr<const Bytes> payload) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (!state_.outgoing.may_offer(payload->size())) return 0;
  Outgoing out;
  out.source = *payload;
  out.on_demand = true;
  out.offered = std::move(payload);
  return add(std::move(out), {});
}

Status BulkUploads::wanted(std::uint64_t transfer, std::uint64_t watermark) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (transfer > state_.last_transfer.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "the worker wants what was never begun");
  }
  const auto out = state_.outgoing.find(transfer);
  if (out != nullptr && out->pulled && !out->later) {
    pulls_sent_.fetch_add(1, std::memory_order_relaxed);
  }
  GPURUN_RETURN_IF_ERROR(state_.outgoing.want(transfer, watermark));
  state_.to_send.notify_all();
  return {};
}

bool BulkUploads::reads(ByteView memory) const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.reads.reads(memory) || state_.outgoing.needs(memory);
}

void BulkUploads::await_read(ByteView memory) noexcept {
  std::unique_lock<std::mutex> lock(state_.mutex);
  // Bounded by the life of the session: end() wakes it, and a send in progress ends with its
  // connection.
  state_.read_done.wait(lock, [&] {
    return !state_.reads.reads(memory) && (state_.ended || !state_.outgoing.needs(memory));
  });
}

bool BulkUploads::sources_are_read(std::uint64_t last) const noexcept {
  return !state_.reads.reads_up_to(last) && (state_.ended || !state_.outgoing.needs_up_to(last));
}

void BulkUploads::await_sources_read(std::uint64_t last) noexcept {
  const NoCancellation uncancelled;
  std::unique_lock<std::mutex> lock(state_.mutex);
  state_.read_done.wait(lock, [&] { return sources_are_read(last); });
}

bool BulkUploads::await_sources_read(std::uint64_t last,
                                     std::chrono::milliseconds at_most) noexcept {
  const NoCancellation uncancelled;
  std::unique_lock<std::mutex> lock(state_.mutex);
  return state_.read_done.wait_for(lock, at_most, [&] { return sources_are_read(last); });
}

void BulkUploads::note_retired(const Outgoing& out, std::uint64_t bytes) {
  if (state_.use.retired(out, bytes)) state_.wake_senders_in_use();
}

void BulkUploads::drop(Outgoing& out) {
  note_retired(out, out.sent - out.retired);
  state_.outgoing.drop(out);
  state_.read_done.notify_all();
}

void BulkUploads::forget(std::uint64_t transfer) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (const auto out = state_.outgoing.find(transfer); out != nullptr) drop(*out);
  state_.wake_for_slots();
}

// Copies the next bytes behind the head. Releases the lock while it copies.
void BulkUploads::copy_next(Lock& lock, Outgoing& out) {
  const Chunk chunk = state_.take_chunk(out, out.filled);
  out.filled += chunk.bytes;
  const ByteView piece = out.piece(chunk);
  state_.begin_read(out, piece);
  lock.unlock();
  std::memcpy(state_.window.start_of(chunk.slot), piece.data(), piece.size());
  state_.reads.has_read();
  lock.lock();
  state_.end_read(out, piece);
  if (!out.over) {
    out.ready.push_back(chunk);
    state_.to_send.notify_one();
    return;
  }
  state_.window.give_back(chunk.slot);
  state_.room.notify_all();
}

void BulkUploads::trim() noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.window.trim(state_.last_transfer.load(std::memory_order_relaxed));
}

bool BulkUploads::send(std::uint64_t transfer) {
  Lock lock(state_.mutex);
  const auto out = state_.outgoing.find(transfer);
  if (out == nullptr) return !state_.ended;  // Abandoned: the log says why.
  // A source that fits the window is copied whole and never waits for the worker. Of a larger
  // source, only the end is copied.
  const std::uint64_t kept = in_memory_ && out->source.size() > kTransferWindowBytes
                                 ? kCopiedBesideMemoryBytes
                                 : kTransferWindowBytes;
  const std::uint64_t over_window =
      out->source.size() - std::min<std::uint64_t>(kept, out->source.size());
  out->head_end = out->filled = (over_window + limits::kBulkChunkBytes - 1) /
                                limits::kBulkChunkBytes * limits::kBulkChunkBytes;
  if (out->head_end != 0) state_.to_send.notify_all();
  const auto is_over = [&] { return state_.ended || out->over || out->taken(); };
  while (!is_over()) {
    // Bounded by the life of the session: end() wakes it.
    state_.room.wait(lock, [&] {
      return is_over() || (out->filled < out->source.size() && state_.outgoing.may_copy(*out));
    });
    if (!is_over()) copy_next(lock, *out);
  }
  // Waits even if the session has ended: the send ends with its connection.
  state_.read_done.wait(lock, [&] { return out->reading == 0; });
  if (state_.outgoing.is_tight()) state_.wake_for_slots();  // Another one is the oldest now.
  return !state_.ended;
}

bool BulkUploads::send_later(std::uint64_t transfer) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (state_.ended) return false;
  const auto out = state_.outgoing.find(transfer);
  if (out == nullptr) return true;
  out->begin_later();
  state_.to_send.notify_all();
  return true;
}

Status BulkUploads::retire(const BulkHeader& header) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const auto found = state_.outgoing.find(header.transfer);
  if (found == nullptr) return {};  // Retired or abandoned before.
  Outgoing& out = *found;
  if (out.pulled && !out.later && header.total == out.source.size() &&
      header.offset == header.total) {
    direct_bytes_.fetch_add(std::min(header.watermark, header.total), std::memory_order_relaxed);
    drop(out);  // The worker has read all of it.
    return {};
  }
  if (header.total != out.source.size() || header.offset > out.sent) {
    return Status(Code::kProtocol, "a receipt for bytes that were never sent");
  }
  const std::uint64_t before = out.retired;
  while (!out.chunks.empty() &&
         out.chunks.front().offset + out.chunks.front().bytes <= header.offset) {
    out.retired += out.chunks.front().bytes;
    state_.window.retire(out.chunks.front().slot);
    out.chunks.pop_front();
  }
  note_retired(out, out.retired - before);
  if (out.retired == out.source.size()) drop(out);
  state_.wake_for_slots();  // A later one may have room now.
  return {};
}

void BulkUploads::abandon(std::uint64_t transfer) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const auto found = state_.outgoing.find(transfer);
  if (found == nullptr) return;
  Outgoing& out = *found;
  out.over = true;
  for (const Chunk& chunk : out.chunks) state_.window.retire(chunk.slot);
  for (const Chunk& chunk : out.ready) state_.window.give_back(chunk.slot);
  out.chunks.clear();
  out.ready.clear();
  drop(out);
  state_.wake_for_slots();
}

}  // namespace gpurun::client
