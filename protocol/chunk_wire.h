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

  ChunkHead() = default;
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

// Chunks on their way out over one connection, together: short ones that follow one another are as
// quick as a long one then, for each send costs both sides a turn through TCP, and often a thread's
// sleep. Packed as `packer` decides, which hears what they took. One for each connection: their
// heads, and parts that are not the chunks' own, lie here and in the packer until the last byte has
// gone.
class ChunksToSend {
 public:
  // So much of chunks and so many of them go together, a packed one as the last. A whole one goes
  // alone: two together were slower with TLS. Over a connection that is slower than the codec each
  // does, for what has its turn next would wait for them.
  static constexpr std::size_t kBytesMax = 2 * limits::kBulkChunkBytes;
  static constexpr std::size_t kChunksMax = 16;

  ChunksToSend() = default;
  ChunksToSend(const ChunksToSend&) = delete;
  ChunksToSend& operator=(const ChunksToSend&) = delete;

  // Whether a chunk of so many bytes may be added: always where all others have gone.
  bool fits(std::size_t chunk_bytes) const {
    return left().empty() || (!closed_ && chunk_bytes < limits::kBulkChunkBytes &&
                              chunks_ < kChunksMax && bytes_ + chunk_bytes <= kBytesMax);
  }
  // Which fits.
  void add(ChunkPacker& packer, const BulkHeader& header, ByteView chunk) {
    if (left().empty()) first_ = count_ = chunks_ = bytes_ = 0;
    const ChunkPacker::Packed packed = packer.pack(chunk);
    closed_ = packed.packed || packer.compresses() || chunk.size() == limits::kBulkChunkBytes;
    const std::size_t bytes = packed.packed ? packed.bytes : chunk.size();
    ChunkHead& head = heads_[chunks_++];
    head = ChunkHead(packed.packed ? FrameKind::kChunkPacked : FrameKind::kChunk, header,
                     bytes + (packed.packed ? kPackedHeadBytes : 0));
    head.packed = packed.head;
    parts_[count_++] = packed.packed ? bytes_of(head) : bytes_of(head).first(kChunkHeadBytes);
    if (!packed.packed) parts_[count_++] = chunk;
    for (const ByteView part : packed.parts) parts_[count_++] = part;
    bytes_ += bytes;
    start_ = ChunkPacker::Clock::now();
  }
  // What has not gone; nothing at the end, and before the first add().
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
  std::array<ChunkHead, kChunksMax> heads_;
  std::array<ByteView, 2 * kChunksMax + kPagesMax / 2 + 2> parts_;
  std::size_t first_ = 0, count_ = 0;
  std::size_t chunks_ = 0, bytes_ = 0;
  bool closed_ = false;
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
