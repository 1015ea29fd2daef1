// Frame reader: the byte stream of a log channel, cut anywhere, with its frames and the records and
// replies inside.
#include "protocol/log/frame_reader.h"

#include <algorithm>
#include <cstring>

#include "protocol/bulk/packed_chunk.h"
#include "protocol/log/packed_records.h"
#include "protocol/log/record.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpurun::protocol {
namespace {

// As the receiving end of a bulk connection, with no bytes after these.
void read_packed(const BulkHeader& header, ByteView bytes) {
  const std::size_t chunk_bytes = chunk_bytes_at(header);
  const std::size_t packed_bytes = bytes.size() - kPackedHeadBytes;
  const Result<PackedHead> head =
      parse_packed_head(bytes.first(kPackedHeadBytes), chunk_bytes, packed_bytes);
  if (!head.ok()) return;
  ByteView rest = bytes.subspan(kPackedHeadBytes);
  Bytes chunk(chunk_bytes), scratch;
  const Status status =
      receive_packed(*head, packed_bytes, MutableBytes(chunk), scratch, [&](MutableBytes into) {
        GPURUN_FUZZ_CHECK(into.size() <= rest.size());
        if (!into.empty()) std::memcpy(into.data(), rest.data(), into.size());
        rest = rest.subspan(into.size());
        return Status();
      });
  GPURUN_FUZZ_CHECK(!status.ok() || rest.empty());
}

void read_frame(const Frame& frame, RecordsUnpacker& unpacker) {
  ByteView rest = frame.payload;
  GPURUN_FUZZ_CHECK(rest.size() == frame.header.payload_bytes);
  const bool packed = frame.header.kind == FrameKind::kPackedRecords;
  if (packed) {
    const Result<ByteView> records = unpacker.unpack(rest);
    if (!records.ok()) return;
    rest = *records;
  }
  if (packed || frame.header.kind == FrameKind::kRecords) {
    while (!rest.empty()) {
      const Result<RecordView> record = parse_record(rest);
      if (!record.ok()) break;
      GPURUN_FUZZ_CHECK(record->header.bytes <= rest.size());
      GPURUN_FUZZ_CHECK(record->payload.size() < record->header.bytes);
      rest = rest.subspan(record->header.bytes);
    }
  } else if (frame.header.kind == FrameKind::kReplies) {
    while (!rest.empty()) {
      const Result<ReplyView> reply = parse_reply(rest);
      if (!reply.ok()) break;
      GPURUN_FUZZ_CHECK(reply->header.bytes <= rest.size());
      rest = rest.subspan(reply->header.bytes);
    }
  } else if (rest.size() >= kBulkHeaderBytes) {
    const Result<BulkHeader> bulk =
        parse_bulk_header(frame.header.kind, rest, rest.size() - kBulkHeaderBytes);
    if (!bulk.ok()) return;
    GPURUN_FUZZ_CHECK(bulk->offset <= bulk->total);
    if (frame.header.kind == FrameKind::kChunkPacked) {
      read_packed(*bulk, rest.subspan(kBulkHeaderBytes));
    }
  }
}

}  // namespace
}  // namespace gpurun::protocol

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  fuzz::Input input(data, size);
  const std::size_t piece_bytes = std::size_t{1} + input.number<std::uint8_t>();
  protocol::FrameReader reader;
  protocol::RecordsUnpacker unpacker;
  while (!input.empty()) {
    const MutableBytes space = reader.space();
    GPURUN_FUZZ_CHECK(reader.wanted() > 0 && space.size() >= reader.wanted());
    const ByteView piece = input.take(std::min(piece_bytes, space.size()));
    std::memcpy(space.data(), piece.data(), piece.size());
    reader.filled(piece.size());
    for (;;) {
      protocol::Frame frame;
      const Result<bool> whole = reader.next(&frame);
      if (!whole.ok()) return 0;  // The session ends.
      if (!*whole) break;
      protocol::read_frame(frame, unpacker);
    }
  }
  return 0;
}
