// Frame headers: checked on a copy.
#include "protocol/log/frame.h"

#include <cstring>

namespace gpurun::protocol {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "headers are copied as they lie: a big-endian host needs byte swaps here");

std::size_t payload_bytes_max(FrameKind kind) {
  switch (kind) {
    case FrameKind::kRecords:
    case FrameKind::kReplies:
    case FrameKind::kControl:
      return limits::kFrameBytesMax;
    case FrameKind::kGoodbye:
      return limits::kHelloBytesMax;
    case FrameKind::kChunk:
      return kBulkHeaderBytes + limits::kBulkChunkBytes;
    case FrameKind::kChunkPacked:
      return kBulkHeaderBytes + kPackedHeadBytes + limits::kBulkChunkBytes;
    case FrameKind::kPackedRecords:
      return kPackedRecordsHeadBytes + kPackedRecordsBytesMax;
    case FrameKind::kChunkReceipt:
    case FrameKind::kChunkAbandoned:
    case FrameKind::kChunkWanted:
    case FrameKind::kChunkWritten:
      return kBulkHeaderBytes;
    case FrameKind::kAcknowledge:
    case FrameKind::kHeartbeat:
      return 0;
  }
  return 0;
}

}  // namespace

Result<FrameHeader> parse_frame_header(ByteView bytes) {
  FrameHeader header;
  if (bytes.size() < sizeof header) return Status(Code::kProtocol, "frame header cut short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kFrameMagic) return Status(Code::kProtocol, "no frame starts here");
  const auto kind = static_cast<std::uint8_t>(header.kind);
  if (kind < kFrameKindMin || kind > kFrameKindMax) {
    return Status(Code::kProtocol, "unknown frame kind " + std::to_string(kind));
  }
  if (header.flags != 0) {
    return Status(Code::kProtocol, "unknown frame flags " + std::to_string(header.flags));
  }
  if (header.payload_bytes > payload_bytes_max(header.kind)) {
    return Status(Code::kProtocol, "a frame of kind " + std::to_string(kind) + " claims " +
                                       std::to_string(header.payload_bytes) + " bytes");
  }
  return header;
}

Result<BulkHeader> parse_bulk_header(FrameKind kind, ByteView bytes, std::size_t chunk_bytes) {
  BulkHeader header;
  if (bytes.size() < sizeof header) return Status(Code::kProtocol, "bulk header cut short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.transfer == 0) return Status(Code::kProtocol, "bulk frame of no transfer");
  if (header.total > limits::kBulkBytesMax) {
    return Status(Code::kProtocol,
                  "bulk transfer of " + std::to_string(header.total) + " bytes is over the bound");
  }
  if (kind == FrameKind::kChunkPacked) {
    if (chunk_bytes < kPackedHeadBytes ||
        chunk_bytes > kPackedHeadBytes + limits::kBulkChunkBytes) {
      return Status(Code::kProtocol,
                    "packed chunk of " + std::to_string(chunk_bytes) + " bytes with its head");
    }
    if (header.offset % limits::kBulkChunkBytes != 0 || header.offset >= header.total) {
      return Status(Code::kProtocol, "packed chunk that is not on the grid");
    }
    return header;
  }
  const bool has_bytes = kind == FrameKind::kChunk;
  if (chunk_bytes > limits::kBulkChunkBytes || (!has_bytes && chunk_bytes != 0)) {
    return Status(Code::kProtocol, "bulk frame carries " + std::to_string(chunk_bytes) + " bytes");
  }
  if (header.offset > header.total || chunk_bytes > header.total - header.offset) {
    return Status(Code::kProtocol, "bulk frame reaches outside its transfer");
  }
  return header;
}

}  // namespace gpurun::protocol
