// RecordDelta: records of a command log as what differs from the record one turn of a loop before.
// A measurement only: docs/adr/0031 says why no connection carries it.
//
//   delta  = (literal | changed)*
//   literal = 0, record
//   changed = back (1 to 255 records), a bit for each 8-byte word of the record, the words that
//   differ
//
// The sequence number counts on by itself. Both ends hold what came before, contiguously.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace gpurun::bench {

inline constexpr std::size_t kDeltaBackMax = 255;
inline constexpr std::size_t kDeltaRecordBytesMax = 4096;  // Longer ones are literal.

// Where the newest records are.
class NewestRecords {
 public:
  struct Entry {
    const std::byte* start = nullptr;
    std::uint32_t bytes = 0;
    std::uint64_t alike = 0;  // The encoder's: what two turns of a loop have in common.
  };
  // nullptr: there are not so many.
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
  // `records`: whole ones, which stay where they are. Returns how many bytes of `out` it took,
  // which has room for one more for each record.
  std::size_t encode(ByteView records, std::byte* out) noexcept;

 private:
  // How many records back the last turn made the same call; 0: it is not known.
  std::size_t find(const NewestRecords::Entry& entry) noexcept;

  NewestRecords newest_;
  std::size_t turn_ = 0;  // Records in a turn of the loop, as it was last seen.
  // The last record (its total_ then) of a likeness, and of one after another.
  std::array<std::size_t, 1024> last_{}, last_of_pair_{};
};

class DeltaDecoder {
 public:
  // Behind what it decoded before. 0: `delta` makes no sense, or does not fit.
  std::size_t decode(ByteView delta, MutableBytes out) noexcept;

 private:
  NewestRecords newest_;
};

}  // namespace gpurun::bench
