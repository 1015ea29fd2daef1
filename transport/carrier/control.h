// Control: what the socket of a connection carries beside or in place of its carrier.
//
// The socket's bytes are records. The first byte of a record is its kind. Numbers are little
// endian. An end sends bytes of the connection over the socket only when it does not send by the
// carrier.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace gpurun::transport::carrier {

enum class Kind : std::uint8_t {
  // Wakes a sleeping receiver. Nothing follows.
  kWake = 1,
  // u32: that many bytes of the connection follow.
  kData = 2,
  // Asks the other end to leave the carrier, as a receiver, and to answer.
  kAsk = 3,
  // u32 entry, u64 taken: the sender of the record has taken so many bytes by the carrier and takes
  // no more of that entry. The other end sends the rest, and what comes later, as kData.
  kLeave = 4,
  // u64 put: the sender of the record sends by the carrier from here on. So many bytes that it has
  // put there before do not count.
  kEnter = 5,
  // The answer to kAsk.
  kAnswer = 6,
};

inline constexpr std::size_t kRecordBytesMax = 13;
// In one record of kData.
inline constexpr std::size_t kDataBytesMax = std::size_t{1} << 30;

struct Record {
  Kind kind = Kind::kWake;
  std::uint32_t entry = 0;  // The number of an entry, from 1.
  std::uint64_t count = 0;  // Of bytes.
};

// Writes a record to `into`, and returns its bytes.
std::size_t write_record(const Record& record,
                         std::array<std::byte, kRecordBytesMax>* into) noexcept;

// Reads the record at the start of `bytes`. Sets `*used` to its bytes, or to 0 when it is not
// whole. Empty: no such record.
std::optional<Record> read_record(ByteView bytes, std::size_t* used) noexcept;

}  // namespace gpurun::transport::carrier
