// Packed records: a frame of records in fewer bytes (FrameKind::kPackedRecords, docs/adr/0031).
//
// A PackedRecordsHead is followed by one LZ4 block. The block may refer back to its history: the
// last 64 KiB of unpacked records of earlier packed frames on the connection. Unpacked frames
// (kRecords) are not part of it. A sender that has lost its history starts with an empty one, which
// is safe: it then refers to less than the receiver has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/log/frame.h"

namespace gpurun::protocol {

struct PackedRecordsHead {
  std::uint32_t bytes =
      0;  // Unpacked size of the block: whole records, 8 to kPackedRecordsBytesMax.
  std::uint32_t padding = 0;  // This many zeros follow the block, 0 to 7, to align the next frame.
};
static_assert(sizeof(PackedRecordsHead) == kPackedRecordsHeadBytes);

// How far a block may refer back: LZ4's own limit.
inline constexpr std::size_t kHistoryBytes = std::size_t{64} << 10;
// Memory of each end for records and their history. A frame is placed behind the one before it.
// When no room is left, its history is moved to the start.
inline constexpr std::size_t kHistoryRoomBytes = kHistoryBytes + 2 * kPackedRecordsBytesMax;

// The receiving end. One thread.
class RecordsUnpacker {
 public:
  // Unpacks the records of such a frame's payload: 8-aligned, valid until the next call. kProtocol:
  // a bad head, or a block that does not match its head. This is final.
  Result<ByteView> unpack(ByteView payload);

 private:
  std::unique_ptr<std::byte[]> room_;  // Allocated at its first use.
  std::size_t end_ = 0;                // The end of the unpacked bytes in the room.
};

}  // namespace gpurun::protocol
