// CreditBook: what the client knows of one device's memory that it may hand out by itself: pieces
// of the device's window that the worker has given memory to (credits), what lives in them, and
// what was freed but may still be used by work on its way (quarantine). See docs/adr/0005.
//
// A book only: it calls nobody. One thread at a time; the owner locks.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "client/free_ranges.h"
#include "client/handles.h"

namespace gpurun::client {

class CreditBook {
 public:
  // Addresses and sizes of allocations are multiples of this, as those of cuMemAlloc are ("suitably
  // aligned for any kind of variable"; 512 is what drivers give).
  static constexpr std::uint64_t kUnitBytes = 512;
  static constexpr std::uint64_t rounded(std::uint64_t bytes) {
    return (bytes + kUnitBytes - 1) & ~(kUnitBytes - 1);
  }

  struct Range {
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
  };

  // False, and nothing changed, when it is empty, not in whole units, or overlaps a piece.
  bool add_piece(std::uint64_t base, std::uint64_t bytes);

  // The address of `bytes` (over 0); 0: no piece has room for them.
  std::uint64_t allocate(std::uint64_t bytes);
  // The largest free range behind which a piece ends and a gap begins that has room for the rest of
  // `bytes`: a piece that were put there would be one memory with it. `base` is where the gap
  // begins, 0: there is none; `bytes` of the range, maybe 0.
  Range open_end(std::uint64_t bytes) const;
  // What allocate() gave for `bytes` and a context of the program freed. It lives no more, but is
  // not given again before release(ticket). Many ranges may share a ticket.
  void quarantine(std::uint64_t ticket, Handle context, std::uint64_t base, std::uint64_t bytes);
  // Nothing uses what was freed under `ticket` any more. Nothing for an unknown ticket.
  void release(std::uint64_t ticket);

  // Takes out a piece in which nothing lives, and which no other context than `context` can still
  // use, when more than `idle_bytes` are idle. It is the worker's again once the work before is
  // done. Bytes 0: there is none.
  Range take_idle_piece(Handle context, std::uint64_t idle_bytes);

  // Likewise, when nothing lives at all, one that lies apart from the lowest: what is kept shall be
  // one memory, or the ends of its parts would serve nobody once all is needed.
  Range take_piece_apart(Handle context);

  // Whose frees are in quarantine.
  std::vector<Handle> quarantined_contexts() const;
  // Of all pieces; of them what lives; and the rest, quarantine included, which a local GPU would
  // call free.
  std::uint64_t committed_bytes() const { return committed_bytes_; }
  std::uint64_t quarantined_bytes() const { return quarantined_bytes_; }
  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t idle_bytes() const { return committed_bytes_ - live_bytes_; }

 private:
  struct Piece {
    std::uint64_t bytes = 0;
    std::size_t live = 0;                                 // Allocations that lie in it, or partly.
    std::unordered_map<Handle, std::size_t> quarantined;  // Likewise freed ranges, by context.
  };
  struct Quarantined {
    Handle context = 0;
    std::vector<Range> ranges;
  };
  // Calls `visit` for each piece that the range touches; neighbouring pieces may share one.
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
