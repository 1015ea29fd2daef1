// Packed records: LZ4 blocks with earlier frames as history.
#include "protocol/log/packed_records.h"

#include <lz4.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace gpurun::protocol {

Result<ByteView> RecordsUnpacker::unpack(ByteView payload) {
  PackedRecordsHead head;
  if (payload.size() <= sizeof head) return Status(Code::kProtocol, "packed records cut short");
  std::memcpy(&head, payload.data(), sizeof head);
  const ByteView rest = payload.subspan(sizeof head);
  const bool padded = head.padding < 8 && head.padding < rest.size();
  const ByteView block = rest.first(padded ? rest.size() - head.padding : 0);
  if (block.empty() || head.bytes % 8 != 0 || head.bytes > kPackedRecordsBytesMax ||
      block.size() >= head.bytes) {
    return Status(Code::kProtocol, "packed records of " + std::to_string(head.bytes) +
                                       " bytes in " + std::to_string(rest.size()) + ", of which " +
                                       std::to_string(head.padding) + " are padding");
  }
  if (room_ == nullptr) room_ = std::make_unique_for_overwrite<std::byte[]>(kHistoryRoomBytes);
  const std::size_t history = std::min(end_, kHistoryBytes);
  if (kHistoryRoomBytes - end_ < head.bytes) {
    std::memmove(room_.get(), room_.get() + end_ - history, history);
    end_ = history;
  }
  std::byte* const into = room_.get() + end_;
  const int unpacked = LZ4_decompress_safe_usingDict(
      reinterpret_cast<const char*>(block.data()), reinterpret_cast<char*>(into),
      static_cast<int>(block.size()), static_cast<int>(head.bytes),
      reinterpret_cast<const char*>(into - history), static_cast<int>(history));
  if (unpacked != static_cast<int>(head.bytes)) {
    return Status(Code::kProtocol, "packed records that do not unpack to their " +
                                       std::to_string(head.bytes) + " bytes");
  }
  end_ += head.bytes;
  return ByteView(into, head.bytes);
}

}  // namespace gpurun::protocol
