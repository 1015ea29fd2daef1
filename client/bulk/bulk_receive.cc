// Bulk, receiving half: what the receiver threads do, and the threads that wait for bytes.
#include <optional>
#include <string>
#include <utility>

#include "client/bulk/bulk.h"
#include "client/process/thread_cpu_time.h"
#include "protocol/bulk/bulk_head.h"

namespace gpurun::client {

using protocol::BulkHeader;
using protocol::FrameKind;

namespace {

// Within one machine a whole chunk passes through a buffer that stays in the cache. The kernel
// copies to it faster, and holds the socket for less long, which the sender waits for
// (docs/adr/0026). TLS has such a buffer of its own.
bool comes_through_cache(const transport::Connection& connection,
                         const protocol::ChunkOnWire& chunk) {
  const transport::Capabilities& can = connection.capabilities();
  return chunk.bytes == limits::kBulkChunkBytes && !chunk.packed.has_value() && can.same_host &&
         !can.encrypted && !can.shares_memory;
}

}  // namespace

unsigned Bulk::expect(std::uint64_t transfer, const HostBox& destination, bool unattended) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  Incoming in;
  in.destination = destination;
  in.total = destination.bytes();
  in.unattended = unattended;
  const unsigned connections = state_.use.expect(in);
  state_.incoming.add(transfer, in);
  return connections;
}

bool Bulk::outstanding(ByteView memory) const noexcept {
  if (!outstanding()) return false;
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.incoming.outstanding(memory);
}

bool Bulk::cancel(std::uint64_t transfer) {
  Lock lock(state_.mutex);
  Incoming* in = state_.incoming.find(transfer);
  if (in == nullptr) return false;
  in->close();
  // Bounded by the life of the connection: its end ends a receive in progress.
  state_.write_done.wait(lock, [&] {
    in = state_.incoming.find(transfer);
    return in == nullptr || in->writers == 0;
  });
  if (in == nullptr) return false;
  const std::uint64_t watermark = in->watermark;
  state_.use.dropped(*in);
  state_.incoming.remove(transfer);
  lock.unlock();
  // If its completion has come, over another connection than some of its bytes, other threads wait
  // for it.
  if (watermark != 0) {
    if (Status status = complete(watermark); !status.ok()) {
      state_.listener.failed(state_.listener.user, std::move(status));
    }
  }
  return true;
}

void Bulk::run_receiver(Channel& channel) {
  protocol::BulkHeads heads;
  Scratch scratch;
  Status status;
  while (status.ok()) status = receive_frame(*channel.connection, heads, scratch);
  state_.listener.failed(state_.listener.user, std::move(status));
}

// Unbounded here and below. The log channel watches for silence and shuts this connection down.
Status Bulk::receive_frame(transport::Connection& connection, protocol::BulkHeads& heads,
                           Scratch& scratch) {
  const auto head = heads.receive(connection);
  if (!head.ok()) return head.status();
  if (!head->has_value()) return {};
  state_.reads.after_reads();
  const auto& [kind, header, bytes] = **head;
  if (header.transfer > state_.last_transfer.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "bytes of a transfer that was never begun");
  }
  if (kind == FrameKind::kChunkReceipt) {
    Status retired = uploads_.retire(header);
    ask_for_more();
    return retired;
  }
  if (kind == FrameKind::kChunkAbandoned) return abandoned(header);
  if (kind == FrameKind::kChunkWanted) return uploads_.wanted(header.transfer, 0);
  const Result<protocol::ChunkOnWire> chunk =
      protocol::receive_chunk_head(connection, kind, header, bytes);
  if (!chunk.ok()) return chunk.status();
  Status received = receive_chunk(connection, header, *chunk, scratch);
  ask_for_more();
  return received;
}

// Waits until transfers 1 to `behind` have arrived. The worker sent them before this chunk, over
// any connection. This cannot deadlock: none of their chunks follows a chunk that waits for them.
// What the earliest chunk waits for has therefore arrived.
Status Bulk::await_turn(std::uint64_t behind) {
  Lock lock(state_.mutex);
  if (behind > state_.last_transfer.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "a chunk behind transfers that were never begun");
  }
  state_.completed.wait(lock,
                        [&] { return state_.ended || state_.completions.through() >= behind; });
  return state_.completions.through() >= behind ? Status()
                                                : Status(Code::kPeerGone, "the session has ended");
}

Status Bulk::receive_chunk(transport::Connection& connection, const BulkHeader& told,
                           const protocol::ChunkOnWire& chunk, Scratch& scratch) {
  const std::size_t bytes = chunk.bytes;
  BulkHeader header = told;
  if (state_.known.spread_copies) {
    const bool last = told.offset + bytes == told.total;
    if (!last) header.watermark = 0;
    const std::uint64_t behind = told.watermark - (last && told.watermark != 0 ? 1 : 0);
    GPURUN_RETURN_IF_ERROR(await_turn(behind));
  }
  std::optional<HostBox> box;  // Empty: its call has failed, and the bytes are dropped.
  bool measures = false;
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    Incoming* const in = state_.incoming.find(header.transfer);
    if (in != nullptr && in->has_room_for(bytes)) {
      if (header.total != in->total) {
        return Status(Code::kProtocol, "a transfer of another size than was asked for");
      }
      in->claimed += bytes;
      ++in->writers;
      measures = state_.use.measures_next_receive(*in);
      if (state_.listener.writes != nullptr) state_.listener.writes(state_.listener.user);
      box = in->destination;
    }
  }
  const bool staged =
      box.has_value() && (!box->is_dense() || comes_through_cache(connection, chunk));
  MutableBytes into;
  if (staged) {
    scratch.staged.resize(bytes);
    into = scratch.staged;
  } else if (box.has_value()) {
    into = box->reach().subspan(static_cast<std::size_t>(header.offset), bytes);
  }
  const auto core_time = measures ? thread_cpu_time() : ConnectionUse::Span{0};
  Status status = protocol::receive_chunk(connection, chunk, into, scratch.packed);
  if (status.ok() && staged) write_box(*box, header.offset, into);
  std::uint64_t finished = box.has_value() ? 0 : header.watermark;
  const auto worked = measures ? thread_cpu_time() - core_time : ConnectionUse::Span{0};
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    if (measures) state_.use.receive_took(worked);
    Incoming* const in = box.has_value() ? state_.incoming.find(header.transfer) : nullptr;
    if (in != nullptr) {
      --in->writers;
      if (status.ok()) {
        in->received += bytes;
        state_.use.received(*in, bytes);
      }
      if (header.watermark != 0) in->watermark = header.watermark;
      if (status.ok() && in->received == in->total) {
        if (in->watermark == 0) return Status(Code::kProtocol, "a completion without its number");
        finished = in->watermark;
        state_.incoming.remove(header.transfer);
        note_receipt({header.transfer, header.total, header.total, 0});
      } else {
        note_receipt({header.transfer, in->received, header.total, 0});
      }
    } else {
      note_receipt({header.transfer, header.offset + bytes, header.total, 0});
    }
    state_.write_done.notify_all();
  }
  GPURUN_RETURN_IF_ERROR(std::move(status));
  return finished == 0 ? Status() : complete(finished);
}

void Bulk::note_receipt(const BulkHeader& receipt) {
  if (state_.receipts.note(receipt, false)) state_.to_send.notify_one();
}

Status Bulk::abandoned(const BulkHeader& header) {
  uploads_.abandon(header.transfer);
  bool unattended = false;
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    if (Incoming* const in = state_.incoming.find(header.transfer); in != nullptr) {
      unattended = in->unattended;
      in->close();
    }
  }
  // An unattended transfer ends here. One that a thread waits for stays until its cancel().
  if (unattended) cancel(header.transfer);
  return header.watermark == 0 ? Status() : complete(header.watermark);
}

Status Bulk::complete(std::uint64_t watermark) {
  std::uint64_t through = 0;
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    GPURUN_RETURN_IF_ERROR(state_.completions.note(watermark));
    GPURUN_RETURN_IF_ERROR(state_.completions.advance(
        [this](std::uint64_t transfer, ByteView bytes) { return write_whole(transfer, bytes); }));
    through = state_.completions.through();
    state_.completed.notify_all();
    if (state_.outgoing.has_lines())
      state_.to_send.notify_one();  // A transfer that was asked for may have waited.
  }
  state_.listener.completed(state_.listener.user, through);
  return {};
}

// Drops the bytes if the call has failed.
Status Bulk::write_whole(std::uint64_t transfer, ByteView bytes) {
  Incoming* const in = state_.incoming.find(transfer);
  if (in == nullptr) return {};
  if (bytes.size() != in->total) {
    return Status(Code::kProtocol, "a transfer of another size than was asked for");
  }
  if (in->claimed != 0) return {};
  if (state_.listener.writes != nullptr) state_.listener.writes(state_.listener.user);
  write_box(in->destination, 0, bytes);
  in->claimed = in->received = in->total;
  state_.use.received(*in, in->total);
  state_.incoming.remove(transfer);
  return {};
}

Result<bool> Bulk::take_whole(std::uint64_t transfer, std::uint64_t number, ByteView bytes) {
  if (transfer > state_.last_transfer.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "bytes of a transfer that was never begun");
  }
  if (bytes.size() > limits::kItemCopyBytesMax) {
    return Status(Code::kProtocol,
                  "a copy of " + std::to_string(bytes.size()) + " bytes on the log");
  }
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    if (state_.ended) return Status(Code::kPeerGone, "the session has ended");
    if (state_.completions.has(number)) {
      return Status(Code::kProtocol, "completion " + std::to_string(number) + " comes twice");
    }
    if (number != state_.completions.through() + 1)
      return state_.completions.keep(number, transfer, bytes);
    GPURUN_RETURN_IF_ERROR(write_whole(transfer, bytes));
  }
  GPURUN_RETURN_IF_ERROR(complete(number));
  return true;
}

std::optional<std::uint64_t> Bulk::await_completion(std::uint64_t behind,
                                                    std::chrono::milliseconds at_most) {
  Lock lock(state_.mutex);
  state_.completed.wait_for(lock, at_most,
                            [&] { return state_.ended || state_.completions.through() > behind; });
  return state_.ended ? std::nullopt : std::optional(state_.completions.through());
}

}  // namespace gpurun::client
