// Bulk, sending half: what the program's threads and the sender threads do.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "client/bulk/bulk.h"
#include "client/log/tsan_send_annotation.h"
#include "client/process/thread_cpu_time.h"
#include "client/progress/receiving_role.h"

namespace gpurun::client {

using protocol::BulkHeader;
using protocol::FrameKind;

std::uint64_t Bulk::add(Outgoing out, std::optional<Line> line) {
  const std::uint64_t transfer = out.transfer = state_.mint();
  state_.outgoing.add(std::move(out), line);
  return transfer;
}

std::uint64_t Bulk::open(ByteView source, std::optional<Line> line) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  Outgoing out;
  out.source = source;
  return add(std::move(out), line);
}

std::uint64_t Bulk::open_in_turn(ByteView source, std::optional<Line> line) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  Outgoing out;
  out.source = source;
  out.on_demand = out.in_turn = true;
  return add(std::move(out), line);
}

std::uint64_t Bulk::offer(std::shared_ptr<const Bytes> payload) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (!state_.outgoing.may_offer(payload->size())) return 0;
  Outgoing out;
  out.source = *payload;
  out.on_demand = true;
  out.offered = std::move(payload);
  return add(std::move(out), {});
}

Status Bulk::wanted(std::uint64_t transfer, std::uint64_t watermark) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (transfer > state_.last_transfer.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "the worker wants what was never begun");
  }
  GPURUN_RETURN_IF_ERROR(state_.outgoing.want(transfer, watermark));
  state_.to_send.notify_all();
  return {};
}

bool Bulk::reads(ByteView memory) const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.reads.reads(memory) || state_.outgoing.needs(memory);
}

void Bulk::await_read(ByteView memory) noexcept {
  std::unique_lock<std::mutex> lock(state_.mutex);
  // Bounded by the life of the session: end() wakes it, and a send in progress ends with its
  // connection.
  state_.read_done.wait(lock, [&] {
    return !state_.reads.reads(memory) && (state_.ended || !state_.outgoing.needs(memory));
  });
}

bool Bulk::sources_are_read(std::uint64_t last) const noexcept {
  return !state_.reads.reads_up_to(last) && (state_.ended || !state_.outgoing.needs_up_to(last));
}

void Bulk::await_sources_read(std::uint64_t last) noexcept {
  const NoCancellation uncancelled;
  std::unique_lock<std::mutex> lock(state_.mutex);
  state_.read_done.wait(lock, [&] { return sources_are_read(last); });
}

bool Bulk::await_sources_read(std::uint64_t last, std::chrono::milliseconds at_most) noexcept {
  const NoCancellation uncancelled;
  std::unique_lock<std::mutex> lock(state_.mutex);
  return state_.read_done.wait_for(lock, at_most, [&] { return sources_are_read(last); });
}

void Bulk::note_retired(const Outgoing& out, std::uint64_t bytes) {
  if (state_.use.retired(out, bytes)) state_.wake_senders_in_use();
}

void Bulk::drop(Outgoing& out) {
  note_retired(out, out.sent - out.retired);
  state_.outgoing.drop(out);
  state_.read_done.notify_all();
}

void Bulk::forget(std::uint64_t transfer) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (const auto out = state_.outgoing.find(transfer); out != nullptr) drop(*out);
  state_.wake_for_slots();
}

// Copies the next bytes behind the head. Releases the lock while it copies.
void Bulk::copy_next(Lock& lock, Outgoing& out) {
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

void Bulk::trim() noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.window.trim(state_.last_transfer.load(std::memory_order_relaxed));
}

bool Bulk::send(std::uint64_t transfer) {
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

bool Bulk::send_later(std::uint64_t transfer) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (state_.ended) return false;
  const auto out = state_.outgoing.find(transfer);
  if (out == nullptr) return true;
  out->begin_later();
  state_.to_send.notify_all();
  return true;
}

Status Bulk::send_receipts(Lock& lock, transport::Connection& connection) {
  const protocol::Receipts::Batch batch = state_.receipts.take();
  lock.unlock();
  Status status = protocol::send_bulk_words(connection, FrameKind::kChunkReceipt, batch.headers());
  lock.lock();
  return status;
}

// Takes the next chunk that may go, if it fits beside the chunks that go already.
Bulk::Taken Bulk::take_next(const protocol::ChunksToSend& beside) {
  Taken taken;
  const auto out = state_.outgoing.next_to_send();
  if (out == nullptr) return taken;
  taken.in_place = out->head != out->head_end;
  const std::size_t bytes = taken.in_place ? out->chunk_bytes(out->head) : out->ready.front().bytes;
  if (!beside.fits(bytes)) return taken;
  state_.outgoing.serve(*out);
  if (taken.in_place) {
    taken.chunk = state_.take_chunk(*out, out->head);
    out->head += bytes;
    taken.payload = out->piece(taken.chunk);
    state_.begin_read(*out, taken.payload);
  } else {
    taken.chunk = out->ready.front();
    out->ready.pop_front();
    taken.payload = ByteView(state_.window.start_of(taken.chunk.slot), bytes);
  }
  // Before it is sent: the receipt may come before send() returns.
  out->sent += bytes;
  out->chunks.push_back(taken.chunk);
  state_.window.begin_send(taken.chunk.slot);
  state_.use.sent(*out, bytes);
  taken.out = out;
  return taken;
}

void Bulk::has_gone(const Taken& taken) {
  if (taken.in_place) {
    state_.end_read(*taken.out, taken.payload);
    if (taken.out->taken()) state_.room.notify_all();
  }
  if (state_.window.end_send(taken.chunk.slot)) state_.wake_for_slots();
}

Status Bulk::send_next(Lock& lock, Channel& channel) {
  constexpr std::size_t kMost = protocol::ChunksToSend::kChunksMax;
  constexpr ConnectionUse::Span kNoTime{0};
  std::array<Taken, kMost> together;
  std::size_t count = 0;
  const bool measures = state_.use.measures_next_send();
  ConnectionUse::Span core_time = kNoTime;
  for (; count < kMost; ++count) {
    const Taken taken = together[count] = take_next(channel.chunks);
    if (taken.out == nullptr) break;
    lock.unlock();
    if (measures && count == 0) core_time = thread_cpu_time();
    const BulkHeader header{taken.out->transfer, taken.chunk.offset, taken.out->source.size(), 0};
    channel.chunks.add(channel.packer, header, taken.payload);
    lock.lock();
  }
  if (count == 0) return {};
  lock.unlock();
  std::array<std::optional<TsanSendAnnotation>, kMost> sent_in_place;
  for (std::size_t i = 0; i < count; ++i) {
    if (together[i].in_place) sent_in_place[i].emplace(together[i].payload, state_.reads.count());
  }
  Status status = channel.chunks.send_rest(channel.packer, *channel.connection);
  for (auto& each : sent_in_place) each.reset();
  const ConnectionUse::Span worked = measures ? thread_cpu_time() - core_time : kNoTime;
  lock.lock();
  if (measures) state_.use.send_took(worked);
  for (std::size_t i = 0; i < count; ++i) has_gone(together[i]);
  return status;
}

void Bulk::run_sender(Channel& channel) {
  Lock lock(state_.mutex);
  for (;;) {
    if (!state_.use.in_use(channel.index)) {
      state_.unused.wait(lock, [&] { return state_.ended || state_.use.in_use(channel.index); });
      if (state_.ended) return;
    }
    // A sender that is no longer in use forwards the wake-up that it consumed.
    state_.to_send.wait(lock, [&] {
      return state_.ended || !state_.use.in_use(channel.index) || state_.receipts.due() ||
             state_.outgoing.next_to_send() != nullptr;
    });
    if (state_.ended) return;
    if (!state_.use.in_use(channel.index)) {
      state_.to_send.notify_one();
      continue;
    }
    Status status =
        state_.receipts.due() ? send_receipts(lock, *channel.connection) : send_next(lock, channel);
    if (!status.ok()) {
      lock.unlock();
      state_.listener.failed(state_.listener.user, std::move(status));
      return;
    }
  }
}

Status Bulk::retire(const BulkHeader& header) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const auto found = state_.outgoing.find(header.transfer);
  if (found == nullptr) return {};  // Retired or abandoned before.
  Outgoing& out = *found;
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

void Bulk::abandon(std::uint64_t transfer) {
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
