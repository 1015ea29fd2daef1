// CreditBook: what the client knows of one device's memory that it may allocate by itself. It knows
// the pieces of the device's window that the worker has given memory to (credits), and the
// allocations in them. It also knows the ranges that were freed but that work under way may still
// use (quarantine). See docs/adr/0005.
//
// It keeps records only, and calls nothing. One thread at a time. The owner locks.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "client/log/handles.h"
#include "client/process/free_ranges.h"

namespace gpurun::client {

class CreditBook {
 public:
  // Addresses and sizes of allocations are multiples of this, like those of cuMemAlloc. They are
  // "suitably aligned for any kind of variable", and drivers give 512.
  static constexpr std::uint64_t kUnitBytes = 512;
  static constexpr std::uint64_t rounded(std::uint64_t bytes) {
    return (bytes + kUnitBytes - 1) & ~(kUnitBytes - 1);
  }

  struct Range {
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
  };

  // Returns false, without a change, if the piece is empty, not in whole units, or overlaps a
  // piece.
  bool add_piece(std::uint64_t base, std::uint64_t bytes);

  // Returns the address of `bytes` (over 0), or 0 if no piece has room.
  std::uint64_t allocate(std::uint64_t bytes);
  // Returns the largest free range at the end of a piece, before a gap with room for the rest of
  // `bytes`. A piece in that gap would make one run of memory with the range. `base` is the start
  // of the gap, or 0 if there is no such gap. `bytes` is the size of the range, which may be 0.
  Range open_end(std::uint64_t bytes) const;
  // A context of the program freed what allocate() returned for `bytes`. The range is no longer
  // live. It is not allocated again before release(ticket). Many ranges may share a ticket.
  void quarantine(std::uint64_t ticket, Handle context, std::uint64_t base, std::uint64_t bytes);
  // Nothing uses what was freed under `ticket` any more. An unknown ticket is ignored.
  void release(std::uint64_t ticket);

  // Takes out a piece if more than `idle_bytes` are idle. No allocation lives in it, and no context
  // other than `context` can still use it. The piece is the worker's again when earlier work is
  // done. Bytes 0: there is no such piece.
  Range take_idle_piece(Handle context, std::uint64_t idle_bytes);

  // As above, if no allocation lives at all: takes a piece that is apart from the lowest. What is
  // kept must be one run of memory, because a request for all of it could not use separate parts.
  Range take_piece_apart(Handle context);

  // The contexts with frees in quarantine.
  std::vector<Handle> quarantined_contexts() const;
  // committed: of all pieces. live: of all allocations. idle: the rest, quarantine included, which
  // a local GPU would report as free.
  std::uint64_t committed_bytes() const { return committed_bytes_; }
  std::uint64_t quarantined_bytes() const { return quarantined_bytes_; }
  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t idle_bytes() const { return committed_bytes_ - live_bytes_; }

 private:
  struct Piece {
    std::uint64_t bytes = 0;
    std::size_t live = 0;                                 // Allocations in it, also in part.
    std::unordered_map<Handle, std::size_t> quarantined;  // Freed ranges, by context.
  };
  struct Quarantined {
    Handle context = 0;
    std::vector<Range> ranges;
  };
  // Calls `visit` for each piece that the range touches. Neighbouring pieces may share a range.
  template <typename Visit>
  void for_each_piece(std::uint64_t base, std::uint64_t bytes, Visit visit);
  using Pieces = std::map<std::uint64_t, Piece>;  // By base.
  static bool is_idle(const Piece& piece, Handle context);
  Range take_out(Pieces::const_iterator at);
  void drop_quarantined(const Range& piece);

  Pieces pieces_;
  FreeRanges free_;
  std::unordered_map<std::uint64_t, Quarantined> quarantine_;  // By ticket.
  std::uint64_t committed_bytes_ = 0;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t quarantined_bytes_ = 0;
};

}  // namespace gpurun::client
