// Chunks on a connection, as they are or packed: what both ends of a bulk lane send and receive,
// over anything that is like transport::Connection.
//
// Waits are unbounded: a dead peer is noticed on the log channel, whose end shuts this one down.
#pragma once

#include <array>
#include <cstddef>
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

// A frame with a BulkHeader and nothing behind it.
template <typename Connection>
Status send_bulk_word(Connection& connection, FrameKind kind, const BulkHeader& header) {
  const ChunkHead head(kind, header, 0);
  const ByteView part = bytes_of(head).first(kChunkHeadBytes);
  return connection.send({&part, 1}, Deadline::never());
}

// A chunk, packed as `packer` decides, which hears what it took. The connection's sender.
template <typename Connection>
Status send_chunk(Connection& connection, ChunkPacker& packer, const BulkHeader& header,
                  ByteView chunk) {
  const ChunkPacker::Packed packed = packer.pack(chunk);
  const std::size_t bytes = packed.packed ? packed.bytes : chunk.size();
  ChunkHead head(packed.packed ? FrameKind::kChunkPacked : FrameKind::kChunk, header,
                 bytes + (packed.packed ? kPackedHeadBytes : 0));
  head.packed = packed.head;
  std::array<ByteView, kPagesMax / 2 + 2> parts;
  std::size_t count = 0;
  parts[count++] = packed.packed ? bytes_of(head) : bytes_of(head).first(kChunkHeadBytes);
  if (!packed.packed) parts[count++] = chunk;
  for (const ByteView part : packed.parts) parts[count++] = part;
  const ChunkPacker::Clock::time_point start = ChunkPacker::Clock::now();
  Status status = connection.send(std::span(parts.data(), count), Deadline::never());
  packer.sent(bytes, ChunkPacker::Clock::now() - start);
  return status;
}

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
