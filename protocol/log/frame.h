// Frame: the unit that a connection carries. It has a fixed header, and a payload that depends on
// `kind`.
//
// Integers are little-endian. Each direction of the log connection numbers its items from 1:
// records towards the worker, replies towards the client. A frame names the first of its own items,
// and the last item of the other direction that its sender has safely taken. So both ends know what
// they may forget. A connection that replaces a cut one continues from these numbers, and an item
// that comes twice is dropped by its number. Bulk frames have numbers of their own (BulkHeader).
//
// No CUDA and no threads here. Every function is pure and may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/limits.h"

namespace gpurun::protocol {

enum class FrameKind : std::uint8_t {
  kRecords = 1,   // Log, client to worker: whole records, one after the other (record.h).
  kReplies,       // Log, worker to client: whole reply items (record.h, ReplyHeader).
  kAcknowledge,   // Log, either way: no payload. `acknowledged` is the message.
  kHeartbeat,     // Any connection, either way: no payload. The sender is alive. A worker on the
                  // log also reports how many calls it owes a reply (FrameHeader::sequence).
  kControl,       // Log, either way: a Cap'n Proto message of the control schema (attach, ...).
  kGoodbye,       // Log, either way: the sender ends the session on purpose. Payload: UTF-8 reason.
  kChunk,         // Bulk, either way: BulkHeader, then that many bytes of one transfer.
  kChunkReceipt,  // Bulk, either way: BulkHeader without bytes. `offset` bytes have retired.
  kChunkAbandoned,  // Bulk, either way: BulkHeader without bytes. No more of this transfer will
                    // come.
  kChunkWanted,  // Bulk, worker to client: BulkHeader without bytes, offset and total 0. Requests a
                 // transfer that was only offered (kFlagBulkOnDemand).
  kChunkPacked,  // Bulk, either way: BulkHeader, PackedHead, then a chunk in fewer bytes
                 // (packed_chunk.h). Only to a peer that offers Feature::kPackedChunks.
  kPackedRecords,  // Log, client to worker: PackedRecordsHead, then records as of kRecords in fewer
                   // bytes (packed_records.h). Only to a peer that offers Feature::kPackedRecords.
  // Bulk, worker to client: BulkHeader without bytes. The first `offset` bytes of the transfer were
  // written by RDMA (kFlagWritten, record.h). With fewer than `total`, the others follow as chunks.
  // With all of them it completes the transfer.
  kChunkWritten
};
inline constexpr std::uint8_t kFrameKindMin = 1;
inline constexpr std::uint8_t kFrameKindMax = 13;

inline constexpr std::uint16_t kFrameMagic = 0x7267;  // "gr"

struct FrameHeader {
  std::uint32_t payload_bytes = 0;  // At most limits::kFrameBytesMax.
  std::uint16_t magic = kFrameMagic;
  FrameKind kind = FrameKind::kHeartbeat;
  std::uint8_t flags = 0;  // None yet. A receiver refuses unknown bits.
  // Records and replies: the number of the first. A worker's heartbeat on the log: 1 plus the
  // number of calls through `acknowledged` that still await replies, or 0 where the release does
  // not count them. Otherwise 0.
  std::uint64_t sequence = 0;
  std::uint64_t acknowledged = 0;  // The last item of the other direction that the sender has
                                   // taken.
};
static_assert(sizeof(FrameHeader) == 24);
inline constexpr std::size_t kFrameHeaderBytes = sizeof(FrameHeader);

// Copies the header out of `bytes` (at least kFrameHeaderBytes), then checks the copy. kProtocol:
// wrong magic, kind or flags, or a payload over its kind's bound.
Result<FrameHeader> parse_frame_header(ByteView bytes);

// The first bytes of a chunk frame's payload.
struct BulkHeader {
  std::uint64_t transfer = 0;   // Minted by the client, for both directions. Never 0, never reused.
  std::uint64_t offset = 0;     // kChunk: where its bytes belong. kChunkReceipt: bytes retired.
                                // kChunkWritten: bytes written.
  std::uint64_t total = 0;      // Bytes of the whole transfer, the same in each of its frames.
  std::uint64_t watermark = 0;  // Worker to client, in the chunk that completes a transfer: the
                                // number of its completion, 1, 2, ... A reply with watermark n is
                                // delivered after completions 1 to n. In other chunks, with
                                // Feature::kSpreadCopies: how many completions were numbered when
                                // this chunk was ready. A chunk is written after these completions,
                                // or after those before its own number. So of two copies to one
                                // place the later one wins. In the receipt of a pulled copy: its
                                // bytes that went straight into the memory of a GPU, for
                                // statistics. Otherwise 0.
};
static_assert(sizeof(BulkHeader) == 32);
inline constexpr std::size_t kBulkHeaderBytes = sizeof(BulkHeader);
inline constexpr std::size_t kPackedHeadBytes = 16;        // PackedHead, packed_chunk.h.
inline constexpr std::size_t kPackedRecordsHeadBytes = 8;  // PackedRecordsHead, packed_records.h.
// The most bytes that the records of a packed frame unpack to.
inline constexpr std::size_t kPackedRecordsBytesMax = std::size_t{256} << 10;

// Copies, then checks: transfer not 0, total within limits::kBulkBytesMax, offset and chunk inside
// total, chunk at most limits::kBulkChunkBytes. A packed chunk begins on the grid of such chunks.
// `chunk_bytes` is the size of what follows the header.
Result<BulkHeader> parse_bulk_header(FrameKind kind, ByteView bytes, std::size_t chunk_bytes);

}  // namespace gpurun::protocol
