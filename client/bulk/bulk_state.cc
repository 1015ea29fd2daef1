// BulkState: slots, reads and wake-ups that several parts need.
#include "client/bulk/bulk_state.h"

namespace gpurun::client {

OutgoingTransfer::Chunk BulkState::take_chunk(const OutgoingTransfer& out, std::uint64_t offset) {
  OutgoingTransfer::Chunk chunk;
  chunk.slot = window.take();
  chunk.offset = offset;
  chunk.bytes = out.chunk_bytes(offset);
  return chunk;
}

void BulkState::begin_read(OutgoingTransfer& out, ByteView piece) {
  ++out.reading;
  reads.begin(out.transfer, piece);
}

void BulkState::end_read(OutgoingTransfer& out, ByteView piece) {
  --out.reading;
  reads.end(out.transfer, piece);
  read_done.notify_all();
}

void BulkState::wake_for_slots() {
  room.notify_all();
  to_send.notify_all();
}

void BulkState::wake_senders_in_use() {
  unused.notify_all();
  to_send.notify_all();
}

}  // namespace gpurun::client
