// Packed records: a frame of records in fewer bytes (FrameKind::kPackedRecords, docs/adr/0031).
//
// Behind a PackedRecordsHead comes one LZ4 block. It may refer back to the last 64 KiB of what the
// packed frames before it on the connection were unpacked to: its history. Frames that went as they
// are (kRecords) are not in it. A sender that has lost its own begins without one: it refers to
// less than the receiver has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/frame.h"

namespace gpurun::protocol {

struct PackedRecordsHead {
  std::uint32_t bytes =
      0;  // What the block unpacks to: whole records, 8 to kPackedRecordsBytesMax.
  std::uint32_t padding = 0;  // So many zeros behind the block, 0 to 7: the next frame is aligned.
};
static_assert(sizeof(PackedRecordsHead) == kPackedRecordsHeadBytes);

// How far a block may refer back; LZ4's own.
inline constexpr std::size_t kHistoryBytes = std::size_t{64} << 10;
// Of either end's memory for records and their history. A frame lies behind the one before it;
// where no room is left its history is moved to the start.
inline constexpr std::size_t kHistoryRoomBytes = kHistoryBytes + 2 * kPackedRecordsBytesMax;

// The receiving end. One thread.
class RecordsUnpacker {
 public:
  // The records of such a frame's payload: 8-aligned, valid until the next call. kProtocol: a bad
  // head, or a block that is not exactly what its head says; final.
  Result<ByteView> unpack(ByteView payload);

 private:
  std::unique_ptr<std::byte[]> room_;  // Not before it is first used.
  std::size_t end_ = 0;                // Of what was unpacked, from the room's start on.
};

}  // namespace gpurun::protocol
