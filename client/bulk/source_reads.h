// SourceReads: the pieces of sources that threads of ours are reading at this moment, to copy or to
// send them.
//
// A program may reuse a source when nothing of it is read any more. It learns that from a call that
// returns, or from the worker. In the second case only after_reads() orders our threads' reads
// before the program's writes.
//
// One thread at a time, and Bulk locks. after_reads() and has_read() need no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace gpurun::client {

// Returns whether the two have a byte in common.
inline bool overlap(ByteView one, ByteView other) noexcept {
  return one.data() < other.data() + other.size() && other.data() < one.data() + one.size();
}

class SourceReads {
 public:
  void begin(std::uint64_t transfer, ByteView piece) { pieces_.push_back({transfer, piece}); }
  void end(std::uint64_t transfer, ByteView piece);

  // Returns whether some of `memory` is being read.
  bool reads(ByteView memory) const noexcept;
  // Returns whether the sources of transfers up to number `last` are being read.
  bool reads_up_to(std::uint64_t last) const noexcept;

  // A thread has read a piece. TsanSendAnnotation adds by itself.
  void has_read() noexcept { read_.fetch_add(1, std::memory_order_acq_rel); }
  std::atomic<std::uint64_t>& count() noexcept { return read_; }
  // What follows comes after every read that was counted.
  void after_reads() const noexcept { (void)read_.load(std::memory_order_acquire); }

 private:
  struct Piece {
    std::uint64_t transfer;
    ByteView bytes;
  };
  std::vector<Piece> pieces_;  // A piece that two threads read at once is listed twice.
  std::atomic<std::uint64_t> read_{0};
};

}  // namespace gpurun::client
