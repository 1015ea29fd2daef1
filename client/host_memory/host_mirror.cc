// HostMirror: blocks and twins by address.
#include "client/host_memory/host_mirror.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace gpurun::client {

using protocol::HostMirrorHead;
using protocol::HostMirrorStep;

namespace {

constexpr std::uint64_t kPageBytes = 4096;

// The pages that lie in the copy as a whole, begin and end.
std::pair<std::uint64_t, std::uint64_t> whole_pages(const protocol::MirrorSpan& span) {
  const auto begin = reinterpret_cast<std::uint64_t>(span.copy);
  return {(begin + kPageBytes - 1) & ~(kPageBytes - 1), (begin + span.bytes) & ~(kPageBytes - 1)};
}

protocol::MirrorSpan part_of(const protocol::MirrorSpan& span, std::size_t offset,
                             std::size_t bytes) {
  return {span.copy + offset, span.twin + offset, span.address + offset, bytes};
}

}  // namespace

HostMirror::~HostMirror() {
  for (const auto& [address, block] : blocks_) munmap(block.twin, block.bytes);
}

bool HostMirror::add(std::uint64_t address, std::uint64_t bytes, std::byte* memory, bool noted) {
  void* const twin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (twin == MAP_FAILED) return false;
  // A forked child has no session that could use it.
  (void)madvise(twin, bytes, MADV_DONTFORK);
  blocks_[address] = {bytes, memory, static_cast<std::byte*>(twin), noted};
  return true;
}

bool HostMirror::remove(std::uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return false;
  if (found->second.noted) {
    watch_.end(reinterpret_cast<std::uint64_t>(found->second.memory), found->second.bytes);
  }
  munmap(found->second.twin, found->second.bytes);
  const std::uint64_t end = address + found->second.bytes;
  allocations_.erase(allocations_.lower_bound(address), allocations_.lower_bound(end));
  blocks_.erase(found);
  return true;
}

std::vector<protocol::HostMirrorRange> HostMirror::allocations_from(std::uint64_t address) const {
  std::vector<protocol::HostMirrorRange> ranges;
  for (auto at = allocations_.lower_bound(address);
       at != allocations_.end() && ranges.size() < protocol::kMirrorRangesMax; ++at) {
    ranges.push_back({at->first, at->second.bytes, at->second.in_turn ? 1u : 0u});
  }
  return ranges;
}

const HostMirror::Block& HostMirror::block_of(std::uint64_t address) const {
  return std::prev(blocks_.upper_bound(address))->second;
}

void HostMirror::add_allocation(std::uint64_t address, std::uint64_t bytes, bool in_turn,
                                std::size_t first_bytes, std::size_t last_bytes) {
  allocations_[address] = {bytes, true, in_turn, first_bytes, last_bytes};
  const auto [first, last] = whole_pages(span_at(address, bytes));
  if (first < last && block_of(address).noted) (void)watch_.begin(first, last - first);
}

bool HostMirror::compare(protocol::MirrorSpan span, bool in_turn, protocol::MirrorWriter* changes,
                         const std::function<bool(ByteView)>& send) {
  for (;;) {
    const std::size_t compared =
        protocol::take_changes(span.copy, span.twin, span.address, span.bytes, changes, in_turn);
    if (compared == span.bytes) return true;
    span = part_of(span, compared, span.bytes - compared);
    if (!send(ByteView(payload_).first(sizeof(HostMirrorHead) + changes->size()))) return false;
    *changes = protocol::MirrorWriter(MutableBytes(payload_).subspan(sizeof(HostMirrorHead)));
  }
}

// Other registered memory may share the first and the last page. The kernel's note of a write there
// would be lost for one of them. So these pages are always compared.
void HostMirror::find_written(const protocol::MirrorSpan& span, bool noted) {
  const auto begin = reinterpret_cast<std::uint64_t>(span.copy);
  const std::uint64_t end = begin + span.bytes;
  const auto [first, last] = whole_pages(span);
  if (first >= last || !noted) {
    written_.push_back({begin, span.bytes});
    return;
  }
  if (begin < first) written_.push_back({begin, first - begin});
  watch_.take_written(first, last - first, &written_);
  if (last < end) written_.push_back({last, end - last});
}

bool HostMirror::is_among(std::span<const protocol::HostMirrorRange> ranges,
                          std::uint64_t address) {
  const auto found = std::lower_bound(
      ranges.begin(), ranges.end(), address,
      [](const protocol::HostMirrorRange& range, std::uint64_t at) { return range.address < at; });
  return found != ranges.end() && found->address == address;
}

bool HostMirror::send_written_except(std::span<const protocol::HostMirrorRange> left_out, bool idle,
                                     const std::function<bool(ByteView)>& send) {
  payload_.resize(protocol::kMirrorWriteBytesMax);
  const HostMirrorHead head{HostMirrorStep::kWrite, 0, 0};
  std::memcpy(payload_.data(), &head, sizeof head);
  protocol::MirrorWriter changes(MutableBytes(payload_).subspan(sizeof head));
  for (auto& [address, allocation] : allocations_) {
    if (is_among(left_out, address)) continue;
    const protocol::MirrorSpan all = span_at(address, allocation.bytes);
    const auto begin = reinterpret_cast<std::uint64_t>(all.copy);
    written_.clear();
    find_written(all, block_of(address).noted);
    if (std::exchange(allocation.fresh, false)) written_ = {{begin, all.bytes}};
    for (const WriteWatch::Pages& pages : written_) {
      const protocol::MirrorSpan part = part_of(all, pages.address - begin, pages.bytes);
      if (!compare(part, allocation.in_turn && idle, &changes, send)) return false;
    }
  }
  return changes.size() == 0 || send(ByteView(payload_).first(sizeof head + changes.size()));
}

bool HostMirror::send_written(bool idle, const std::function<bool(ByteView)>& send) {
  return send_written_except({}, idle, send);
}

protocol::MirrorSpan HostMirror::span_at(std::uint64_t address, std::uint64_t bytes) {
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return {};
  const auto& [start, block] = *std::prev(next);
  const std::uint64_t offset = address - start;
  if (offset >= block.bytes) return {};
  return {block.memory + offset, block.twin + offset, address,
          std::min(bytes, block.bytes - offset)};
}

std::vector<protocol::HostMirrorRange> HostMirror::polled() const {
  std::vector<protocol::HostMirrorRange> ranges;
  std::uint64_t left = protocol::kMirrorPolledBytesMax;
  for (const auto& [address, allocation] : allocations_) {
    if (allocation.bytes > std::min(left, kPolledAllocationMax)) continue;
    left -= allocation.bytes;
    ranges.push_back({address, allocation.bytes, 0});
  }
  return ranges;
}

bool HostMirror::send_polled(std::span<const protocol::HostMirrorRange> ranges,
                             const std::function<bool(ByteView)>& send) {
  std::vector<protocol::MirrorSpan> spans;
  for (const protocol::HostMirrorRange& range : ranges) {
    spans.push_back(span_at(range.address, range.bytes));
  }
  flags_.resize(sizeof(HostMirrorHead) + protocol::kMirrorPolledBytesMax * 5 / 4);
  const HostMirrorHead head{HostMirrorStep::kWrite, 0, 0};
  std::memcpy(flags_.data(), &head, sizeof head);
  protocol::MirrorWriter changes(MutableBytes(flags_).subspan(sizeof head));
  const bool anyway = unsettled_ >= protocol::kMirrorUnsettledMax;
  unsettled_ = protocol::take_settled_changes(spans, anyway, &changes) ? 0 : unsettled_ + 1;
  if (changes.size() == 0) return true;
  return send_written_except(ranges, false, send) &&
         send(ByteView(flags_).first(sizeof head + changes.size()));
}

protocol::MirrorSpan HostMirror::reached_at(std::uint64_t address, std::uint64_t bytes) {
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return {};
  const auto& [start, allocation] = *std::prev(next);
  const std::uint64_t offset = address - start;
  if (offset >= allocation.bytes) return {};
  return span_at(address, std::min(bytes, allocation.bytes - offset));
}

// The part of a piece that lies in one allocation. Bytes that are not of the allocation become
// those of the twin, which change nothing.
void HostMirror::add_reached(const protocol::MirrorSpan& into, const std::byte* lines,
                             bool in_turn) {
  const auto& [start, allocation] = *std::prev(allocations_.upper_bound(into.address));
  const std::uint64_t end = start + allocation.bytes;
  const protocol::HostMirrorPiece piece{into.address, static_cast<std::uint32_t>(into.bytes),
                                        in_turn ? 1U : 0U};
  const std::size_t at = reached_.size();
  reached_.resize(at + sizeof piece + into.bytes);
  std::memcpy(reached_.data() + at, &piece, sizeof piece);
  std::byte* const bytes = reached_.data() + at + sizeof piece;
  std::memcpy(bytes, lines, into.bytes);
  if (into.address == start) std::memcpy(bytes, into.twin, allocation.first);
  if (into.address + into.bytes == end) {
    const std::size_t last = into.bytes - allocation.last;
    std::memcpy(bytes + last, into.twin + last, allocation.last);
  }
}

// A piece may go through several allocations, and through memory between them.
bool HostMirror::take(ByteView pieces) {
  reached_.clear();
  protocol::HostMirrorPiece piece;
  ByteView lines;
  while (!pieces.empty()) {
    if (!protocol::next_piece(&pieces, &piece, &lines)) return false;
    std::uint64_t address = piece.address;
    while (!lines.empty()) {
      const protocol::MirrorSpan into = reached_at(address, lines.size());
      if (into.bytes != 0) add_reached(into, lines.data(), piece.in_turn != 0);
      std::uint64_t step = into.bytes;
      if (step == 0) {
        const auto next = allocations_.upper_bound(address);
        step = next == allocations_.end() ? lines.size() : next->first - address;
      }
      step = std::min<std::uint64_t>(step, lines.size());
      lines = lines.subspan(step);
      address += step;
    }
  }
  return protocol::merge_pieces(reached_, [this](std::uint64_t address, std::uint64_t bytes) {
    return reached_at(address, bytes);
  });
}

}  // namespace gpurun::client
