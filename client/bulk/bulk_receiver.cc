// BulkReceiver: reads frames, writes chunks to their places, and passes on what the worker says.
#include "client/bulk/bulk_receiver.h"

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "client/bulk/connection_use.h"
#include "client/bulk/host_box.h"
#include "client/process/thread_cpu_time.h"
#include "protocol/bulk/bulk_head.h"
#include "protocol/limits.h"
#include "transport/carrier/connection.h"

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

Status BulkReceiver::start() {
  return thread_.start(
      "gpurun-bulk-in",
      [](void* of) -> void* {
        static_cast<BulkReceiver*>(of)->run();
        return nullptr;
      },
      this);
}

void BulkReceiver::run() {
  protocol::BulkHeads heads;
  Scratch scratch;
  Status status;
  while (status.ok()) status = receive_frame(heads, scratch);
  state_.listener.failed(state_.listener.user, std::move(status));
}

// Unbounded here and below. The log channel watches for silence and shuts this connection down.
Status BulkReceiver::receive_frame(protocol::BulkHeads& heads, Scratch& scratch) {
  const auto head = heads.receive(connection_);
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
  if (kind == FrameKind::kChunkWritten) return written(header);
  if (kind == FrameKind::kChunkWanted) return uploads_.wanted(header.transfer, 0);
  const Result<protocol::ChunkOnWire> chunk =
      protocol::receive_chunk_head(connection_, kind, header, bytes);
  if (!chunk.ok()) return chunk.status();
  Status received = receive_chunk(header, *chunk, scratch);
  ask_for_more();
  return received;
}

Status BulkReceiver::receive_chunk(const BulkHeader& told, const protocol::ChunkOnWire& chunk,
                                   Scratch& scratch) {
  const std::size_t bytes = chunk.bytes;
  BulkHeader header = told;
  if (state_.known.spread_copies) {
    const bool last = told.offset + bytes == told.total;
    if (!last) header.watermark = 0;
    const std::uint64_t behind = told.watermark - (last && told.watermark != 0 ? 1 : 0);
    GPURUN_RETURN_IF_ERROR(downloads_.await_turn(behind));
  }
  std::optional<HostBox> box;  // Empty: its call has failed, and the bytes are dropped.
  bool measures = false;
  bool unwritten = false;
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    Incoming* const in = state_.incoming.find(header.transfer);
    if (in != nullptr && in->has_room_for(bytes)) {
      if (header.total != in->total) {
        return Status(Code::kProtocol, "a transfer of another size than was asked for");
      }
      in->claimed += bytes;
      ++in->writers;
      unwritten = in->written;
      measures = state_.use.measures_next_receive(*in);
      if (state_.listener.writes != nullptr) state_.listener.writes(state_.listener.user);
      box = in->destination;
    }
  }
  if (unwritten) end_writes();
  const bool staged =
      box.has_value() && (!box->is_dense() || comes_through_cache(connection_, chunk));
  MutableBytes into;
  if (staged) {
    scratch.staged.resize(bytes);
    into = scratch.staged;
  } else if (box.has_value()) {
    into = box->reach().subspan(static_cast<std::size_t>(header.offset), bytes);
  }
  const auto core_time = measures ? thread_cpu_time() : ConnectionUse::Span{0};
  Status status = protocol::receive_chunk(connection_, chunk, into, scratch.packed);
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
  return finished == 0 ? Status() : downloads_.complete(finished);
}

void BulkReceiver::ask_for_more() {
  if (!state_.use.lacks()) return;
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    if (!state_.use.ask_for_more() || state_.ended) return;
  }
  if (state_.listener.wants_more != nullptr) state_.listener.wants_more(state_.listener.user);
}

void BulkReceiver::note_receipt(const BulkHeader& receipt) {
  if (state_.receipts.note(receipt, false)) state_.to_send.notify_one();
}

bool BulkReceiver::has_left_carrier() const noexcept {
  const auto* const carried =
      dynamic_cast<const transport::carrier::CarriedConnection*>(&connection_);
  return carried == nullptr || carried->changes().left != 0;
}

void BulkReceiver::end_writes() const {
  if (state_.listener.end_writes != nullptr) state_.listener.end_writes(state_.listener.user);
}

// While the connection uses the carrier, the frame came behind the bytes in the same queue pair.
Status BulkReceiver::written(const BulkHeader& header) {
  if (header.offset != header.total || has_left_carrier()) end_writes();
  return downloads_.note_written(header);
}

Status BulkReceiver::abandoned(const BulkHeader& header) {
  uploads_.abandon(header.transfer);
  bool unattended = false;
  bool written = false;
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    if (Incoming* const in = state_.incoming.find(header.transfer); in != nullptr) {
      unattended = in->unattended;
      written = in->written;
      in->close();
    }
  }
  if (written && has_left_carrier()) end_writes();
  // An unattended transfer ends here. One that a thread waits for stays until its cancel().
  if (unattended) downloads_.cancel(header.transfer);
  return header.watermark == 0 ? Status() : downloads_.complete(header.watermark);
}

}  // namespace gpurun::client
