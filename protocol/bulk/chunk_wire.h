// Chunks on a connection: code that both ends of a bulk connection use to send and receive them,
// unchanged or packed. It works over any type like transport::Connection.
//
// Waits have no bound. A dead peer is noticed on the log connection, and the end of that shuts this
// connection down.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

#include "base/deadline.h"
#include "protocol/bulk/chunk_packer.h"
#include "protocol/bulk/packed_chunk.h"

namespace gpurun::protocol {

// Everything before a chunk's bytes. The last field exists only before a packed chunk.
struct ChunkHead {
  FrameHeader frame;
  BulkHeader bulk;
  PackedHead packed;

  ChunkHead() = default;
  // `bytes` is the size of everything behind the BulkHeader.
  ChunkHead(FrameKind kind, const BulkHeader& header, std::size_t bytes) : bulk(header) {
    frame.kind = kind;
    frame.payload_bytes = static_cast<std::uint32_t>(kBulkHeaderBytes + bytes);
  }
};
static_assert(sizeof(ChunkHead) == kFrameHeaderBytes + kBulkHeaderBytes + kPackedHeadBytes);
inline constexpr std::size_t kChunkHeadBytes = kFrameHeaderBytes + kBulkHeaderBytes;

inline constexpr std::size_t kBulkWordsMax = 16;  // For one send_bulk_words().

// Sends frames that have a BulkHeader and nothing else, at most kBulkWordsMax.
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

// Chunks that go out together over one connection. Together, short chunks that follow one another
// are as fast as a long one. Each send of its own would cost both sides a turn through TCP, and
// often a thread's sleep. `packer` decides how they are packed, and learns the time of each send.
// There is one for each connection. The heads, and parts that are not the chunks' own bytes, are
// here and in the packer until the last byte has been sent.
class ChunksToSend {
 public:
  // This many bytes and chunks go together. A packed chunk ends such a group. A chunk of full size
  // goes alone, because two together were slower with TLS. Over a connection that is slower than
  // the codec every chunk goes alone, so that the next in turn need not wait.
  static constexpr std::size_t kBytesMax = 2 * limits::kBulkChunkBytes;
  static constexpr std::size_t kChunksMax = 16;

  ChunksToSend() = default;
  ChunksToSend(const ChunksToSend&) = delete;
  ChunksToSend& operator=(const ChunksToSend&) = delete;

  // True when a chunk of `chunk_bytes` may be added. Always true when all others have been sent.
  bool fits(std::size_t chunk_bytes) const {
    return left().empty() || (!closed_ && chunk_bytes < limits::kBulkChunkBytes &&
                              chunks_ < kChunksMax && bytes_ + chunk_bytes <= kBytesMax);
  }
  // Adds a chunk for which fits() is true.
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
  // What has not been sent. Empty at the end, and before the first add().
  std::span<const ByteView> left() const {
    return std::span(parts_).subspan(first_, count_ - first_);
  }
  // `bytes` of left() have been sent.
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

// The content of a kChunk or kChunkPacked frame.
struct ChunkOnWire {
  std::size_t bytes = 0;             // Of the unpacked chunk.
  std::size_t wire_bytes = 0;        // That follow.
  std::optional<PackedHead> packed;  // Only for kChunkPacked.
};

// `bytes` is the size of everything behind the BulkHeader, as parse_bulk_header() has checked. For
// a packed chunk, receives and checks its PackedHead.
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

// Receives the chunk's bytes to `into`, which is as large as the chunk. Discards them when `into`
// is empty. `scratch` keeps its memory for the next call.
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
