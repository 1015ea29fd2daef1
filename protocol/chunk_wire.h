// Chunks on a connection, as they are or packed: what both ends of a bulk lane send and receive,
// over anything that is like transport::Connection.
//
// Waits are unbounded: a dead peer is noticed on the log channel, whose end shuts this one down.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

#include "base/deadline.h"
#include "protocol/chunk_packer.h"
#include "protocol/packed_chunk.h"

namespace gpurun::protocol {

// What stands before a chunk's bytes; the last only before those of a packed one.
struct ChunkHead {
  FrameHeader frame;
  BulkHeader bulk;
  PackedHead packed;

  // `bytes`: what follows the BulkHeader.
  ChunkHead(FrameKind kind, const BulkHeader& header, std::size_t bytes) : bulk(header) {
    frame.kind = kind;
    frame.payload_bytes = static_cast<std::uint32_t>(kBulkHeaderBytes + bytes);
  }
};
static_assert(sizeof(ChunkHead) == kFrameHeaderBytes + kBulkHeaderBytes + kPackedHeadBytes);
inline constexpr std::size_t kChunkHeadBytes = kFrameHeaderBytes + kBulkHeaderBytes;

inline constexpr std::size_t kBulkWordsMax = 16;  // Of send_bulk_words().

// Frames with a BulkHeader each and nothing behind it, at most kBulkWordsMax.
template <typename Connection>
Status send_bulk_words(Connection& connection, FrameKind kind,
                       std::span<const BulkHeader> headers) {
  std::array<std::byte, kBulkWordsMax * kChunkHeadBytes> words;
  std::size_t size = 0;
  for (const BulkHeader& header : headers.first(std::min(headers.size(), kBulkWordsMax))) {
    const ChunkHead head(kind, header, 0);
    std::memcpy(words.data() + size, &head, kChunkHeadBytes);
    size += kChunkHeadBytes;
  }
  const ByteView part = ByteView(words).first(size);
  return connection.send({&part, 1}, Deadline::never());
}
template <typename Connection>
Status send_bulk_word(Connection& connection, FrameKind kind, const BulkHeader& header) {
  return send_bulk_words(connection, kind, std::span(&header, 1));
}

// A chunk on its way out, packed as `packer` decides, which hears what it took. One for each
// connection: its parts lie here and in the packer until the last byte has gone.
class ChunkToSend {
 public:
  ChunkToSend() = default;
  ChunkToSend(const ChunkToSend&) = delete;
  ChunkToSend& operator=(const ChunkToSend&) = delete;

  void begin(ChunkPacker& packer, const BulkHeader& header, ByteView chunk) {
    const ChunkPacker::Packed packed = packer.pack(chunk);
    bytes_ = packed.packed ? packed.bytes : chunk.size();
    head_ = ChunkHead(packed.packed ? FrameKind::kChunkPacked : FrameKind::kChunk, header,
                      bytes_ + (packed.packed ? kPackedHeadBytes : 0));
    head_.packed = packed.head;
    first_ = count_ = 0;
    parts_[count_++] = packed.packed ? bytes_of(head_) : bytes_of(head_).first(kChunkHeadBytes);
    if (!packed.packed) parts_[count_++] = chunk;
    for (const ByteView part : packed.parts) parts_[count_++] = part;
    start_ = ChunkPacker::Clock::now();
  }
  // What has not gone; nothing at the end, and before the first begin().
  std::span<const ByteView> left() const {
    return std::span(parts_).subspan(first_, count_ - first_);
  }
  // So many bytes of it have.
  void went(ChunkPacker& packer, std::size_t bytes) {
    while (first_ != count_ && bytes >= parts_[first_].size()) bytes -= parts_[first_++].size();
    if (first_ != count_) {
      parts_[first_] = parts_[first_].subspan(bytes);
    } else {
      packer.sent(bytes_, ChunkPacker::Clock::now() - start_);
    }
  }
  template <typename Connection>
  Status send_rest(ChunkPacker& packer, Connection& connection) {
    GPURUN_RETURN_IF_ERROR(connection.send(left(), Deadline::never()));
    first_ = count_;
    packer.sent(bytes_, ChunkPacker::Clock::now() - start_);
    return {};
  }

 private:
  ChunkHead head_{FrameKind::kChunk, BulkHeader{}, 0};
  std::array<ByteView, kPagesMax / 2 + 2> parts_;
  std::size_t first_ = 0, count_ = 0;
  std::size_t bytes_ = 0;
  ChunkPacker::Clock::time_point start_;
};

// What a frame of kChunk or kChunkPacked carries.
struct ChunkOnWire {
  std::size_t bytes = 0;             // Of the chunk.
  std::size_t wire_bytes = 0;        // That follow.
  std::optional<PackedHead> packed;  // kChunkPacked.
};

// `bytes`: what follows the BulkHeader, as parse_bulk_header() has checked. Receives and checks the
// head of a packed one.
template <typename Connection>
Result<ChunkOnWire> receive_chunk_head(Connection& connection, FrameKind kind,
                                       const BulkHeader& header, std::size_t bytes) {
  ChunkOnWire chunk{bytes, bytes, {}};
  if (kind != FrameKind::kChunkPacked) return chunk;
  std::byte words[kPackedHeadBytes];
  const Result<std::size_t> got = connection.receive(words, sizeof words, Deadline::never());
  if (!got.ok()) return got.status();
  chunk.bytes = chunk_bytes_at(header);
  chunk.wire_bytes = bytes - kPackedHeadBytes;
  const Result<PackedHead> packed = parse_packed_head(words, chunk.bytes, chunk.wire_bytes);
  if (!packed.ok()) return packed.status();
  chunk.packed = *packed;
  return chunk;
}

// Its bytes, to `into`, which is as large as the chunk, or from anywhere to nowhere when it is
// empty. `scratch` keeps its memory for the next one.
template <typename Connection>
Status receive_chunk(Connection& connection, const ChunkOnWire& chunk, MutableBytes into,
                     Bytes& scratch) {
  const auto receive = [&connection](MutableBytes bytes) {
    return bytes.empty() ? Status()
                         : connection.receive(bytes, bytes.size(), Deadline::never()).status();
  };
  if (into.empty()) {
    scratch.resize(limits::kBulkChunkBytes);
    return receive(MutableBytes(scratch).first(chunk.wire_bytes));
  }
  if (!chunk.packed.has_value()) return receive(into);
  return receive_packed(*chunk.packed, chunk.wire_bytes, into, scratch, receive);
}

}  // namespace gpurun::protocol
