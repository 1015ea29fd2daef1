// RecordDelta: records of a command log as the difference from the record of one loop turn before.
// Only for measurement: docs/adr/0031 explains why no connection uses it.
//
//   delta   = (literal | changed)*
//   literal = 0, record
//   changed = back (1 to 255 records), a bit for each 8-byte word, the words that differ
//
// The sequence number is implied. Both ends keep the earlier records, contiguously.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace gpurun::bench {

inline constexpr std::size_t kDeltaBackMax = 255;
inline constexpr std::size_t kDeltaRecordBytesMax = 4096;  // Longer records are literal.

// The positions of the newest records.
class NewestRecords {
 public:
  struct Entry {
    const std::byte* start = nullptr;
    std::uint32_t bytes = 0;
    std::uint64_t alike = 0;  // Encoder only: equal for records of the same call.
  };
  // nullptr: there are fewer records than that.
  const Entry* back(std::size_t count) const noexcept {
    return count <= total_ ? &entries_[(total_ - count) % entries_.size()] : nullptr;
  }
  void add(const Entry& entry) noexcept { entries_[total_++ % entries_.size()] = entry; }
  std::size_t total() const noexcept { return total_; }

 private:
  std::array<Entry, kDeltaBackMax + 1> entries_;
  std::size_t total_ = 0;
};

class DeltaEncoder {
 public:
  // `records` holds whole records, which must stay in place. Returns the number of bytes written to
  // `out`. `out` must have room for the records plus one byte for each record.
  std::size_t encode(ByteView records, std::byte* out) noexcept;

 private:
  // The distance, in records, to the same call in the last turn. 0: unknown.
  std::size_t find(const NewestRecords::Entry& entry) noexcept;

  NewestRecords newest_;
  std::size_t turn_ = 0;  // The number of records in a turn of the loop, as last seen.
  // The last record with a key, and with a pair of keys, as its value of total_.
  std::array<std::size_t, 1024> last_{}, last_of_pair_{};
};

class DeltaDecoder {
 public:
  // Writes behind its earlier output. Returns 0 when `delta` is invalid or does not fit.
  std::size_t decode(ByteView delta, MutableBytes out) noexcept;

 private:
  NewestRecords newest_;
};

}  // namespace gpurun::bench
