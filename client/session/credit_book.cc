// CreditBook: its pieces, its quarantine, and what may be given back.
#include "client/session/credit_book.h"

#include <algorithm>
#include <iterator>

namespace gpurun::client {

template <typename Visit>
void CreditBook::for_each_piece(std::uint64_t base, std::uint64_t bytes, Visit visit) {
  const auto next = pieces_.upper_bound(base);
  if (next == pieces_.begin()) return;
  for (auto at = std::prev(next); at != pieces_.end() && at->first < base + bytes; ++at) {
    if (base < at->first + at->second.bytes) visit(at->second);
  }
}

bool CreditBook::add_piece(std::uint64_t base, std::uint64_t bytes) {
  if (base == 0 || bytes == 0 || base % kUnitBytes != 0 || bytes % kUnitBytes != 0 ||
      base + bytes < base) {
    return false;
  }
  const auto next = pieces_.lower_bound(base);
  if (next != pieces_.end() && next->first < base + bytes) return false;
  if (next != pieces_.begin()) {
    const auto& [start, piece] = *std::prev(next);
    if (start + piece.bytes > base) return false;
  }
  pieces_.emplace_hint(next, base, Piece())->second.bytes = bytes;
  free_.give(base, bytes);
  committed_bytes_ += bytes;
  return true;
}

std::uint64_t CreditBook::allocate(std::uint64_t bytes) {
  const std::uint64_t wanted = rounded(bytes);
  const std::uint64_t address = wanted < bytes ? 0 : free_.take(wanted);
  if (address == 0) return 0;
  for_each_piece(address, wanted, [](Piece& piece) { ++piece.live; });
  live_bytes_ += wanted;
  return address;
}

CreditBook::Range CreditBook::open_end(std::uint64_t bytes) const {
  Range best;
  for (auto at = pieces_.begin(); at != pieces_.end(); ++at) {
    const std::uint64_t end = at->first + at->second.bytes;
    const std::uint64_t idle = free_.before(end);
    const auto next = std::next(at);
    if (next != pieces_.end() && next->first - end < bytes - std::min(bytes, idle)) continue;
    if (next != pieces_.end() && next->first == end) continue;
    if (best.base == 0 || idle > best.bytes) best = {end, idle};
  }
  return best;
}

void CreditBook::quarantine(std::uint64_t ticket, Handle context, std::uint64_t base,
                            std::uint64_t bytes) {
  const std::uint64_t whole = rounded(bytes);
  for_each_piece(base, whole, [context](Piece& piece) {
    --piece.live;
    ++piece.quarantined[context];
  });
  live_bytes_ -= whole;
  quarantined_bytes_ += whole;
  Quarantined& kept = quarantine_[ticket];
  kept.context = context;
  kept.ranges.push_back({base, whole});
}

void CreditBook::release(std::uint64_t ticket) {
  const auto found = quarantine_.find(ticket);
  if (found == quarantine_.end()) return;
  const Handle context = found->second.context;
  for (const Range& range : found->second.ranges) {
    free_.give(range.base, range.bytes);
    quarantined_bytes_ -= range.bytes;
    for_each_piece(range.base, range.bytes, [context](Piece& piece) {
      const auto count = piece.quarantined.find(context);
      if (--count->second == 0) piece.quarantined.erase(count);
    });
  }
  quarantine_.erase(found);
}

// Another piece may take the same place before the tickets are released. The parts of a range in
// neighbouring pieces stay.
void CreditBook::drop_quarantined(const Range& piece) {
  const std::uint64_t end = piece.base + piece.bytes;
  for (auto kept = quarantine_.begin(); kept != quarantine_.end();) {
    std::vector<Range> left;
    for (const Range& range : kept->second.ranges) {
      const std::uint64_t range_end = range.base + range.bytes;
      const std::uint64_t inside_from = std::max(range.base, piece.base);
      const std::uint64_t inside_to = std::min(range_end, end);
      if (inside_from >= inside_to) {
        left.push_back(range);
        continue;
      }
      quarantined_bytes_ -= inside_to - inside_from;
      if (range.base < inside_from) left.push_back({range.base, inside_from - range.base});
      if (inside_to < range_end) left.push_back({inside_to, range_end - inside_to});
    }
    kept->second.ranges.swap(left);
    kept = kept->second.ranges.empty() ? quarantine_.erase(kept) : std::next(kept);
  }
}

bool CreditBook::is_idle(const Piece& piece, Handle context) {
  const auto& quarantined = piece.quarantined;
  return piece.live == 0 &&
         (quarantined.empty() || (quarantined.size() == 1 && quarantined.count(context) == 1));
}

CreditBook::Range CreditBook::take_idle_piece(Handle context, std::uint64_t idle_bytes) {
  if (committed_bytes_ - live_bytes_ <= idle_bytes) return {};
  // The highest: allocate() prefers low addresses.
  for (auto at = pieces_.end(); at != pieces_.begin();) {
    if (is_idle((--at)->second, context)) return take_out(at);
  }
  return {};
}

CreditBook::Range CreditBook::take_piece_apart(Handle context) {
  if (live_bytes_ != 0 || pieces_.empty()) return {};
  auto lowest_end = pieces_.begin();
  std::uint64_t end = lowest_end->first;
  while (lowest_end != pieces_.end() && lowest_end->first == end) {
    end += lowest_end->second.bytes;
    ++lowest_end;
  }
  for (auto at = pieces_.end(); at != lowest_end;) {
    if (is_idle((--at)->second, context)) return take_out(at);
  }
  return {};
}

// The parts of the piece that are not in quarantine are free.
CreditBook::Range CreditBook::take_out(Pieces::const_iterator taken) {
  const Range piece{taken->first, taken->second.bytes};
  std::vector<Range> quarantined;
  for (const auto& [ticket, kept] : quarantine_) {
    for (const Range& range : kept.ranges) {
      const std::uint64_t from = std::max(range.base, piece.base);
      const std::uint64_t to = std::min(range.base + range.bytes, piece.base + piece.bytes);
      if (from < to) quarantined.push_back({from, to - from});
    }
  }
  std::sort(quarantined.begin(), quarantined.end(),
            [](const Range& a, const Range& b) { return a.base < b.base; });
  std::uint64_t at = piece.base;
  quarantined.push_back({piece.base + piece.bytes, 0});
  for (const Range& range : quarantined) {
    if (range.base > at) free_.remove(at, range.base - at);
    at = range.base + range.bytes;
  }
  drop_quarantined(piece);
  committed_bytes_ -= piece.bytes;
  pieces_.erase(piece.base);
  return piece;
}

std::vector<Handle> CreditBook::quarantined_contexts() const {
  std::vector<Handle> contexts;
  for (const auto& [ticket, kept] : quarantine_) {
    if (std::find(contexts.begin(), contexts.end(), kept.context) == contexts.end()) {
      contexts.push_back(kept.context);
    }
  }
  return contexts;
}

}  // namespace gpurun::client
