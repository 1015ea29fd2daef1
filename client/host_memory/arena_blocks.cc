// ArenaBlocks: blocks in the order of their addresses, and the free ranges of each context.
#include "client/host_memory/arena_blocks.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpurun::client {
namespace {

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

// The entry that holds `address`, or the end.
ArenaBlocks::Entries::iterator ArenaBlocks::entry_of(std::uint64_t address) {
  auto next = entries_.upper_bound(address);
  if (next == entries_.begin()) return entries_.end();
  --next;
  return address - next->first < next->second.bytes ? next : entries_.end();
}

// 0: there is no gap.
std::uint64_t ArenaBlocks::find_gap(std::uint64_t bytes) const {
  std::uint64_t at = base_;
  for (const auto& [start, entry] : entries_) {
    if (start > at && start - at >= bytes + kUnitBytes) return at;
    at = round_up(start + entry.bytes + kUnitBytes, kBlockUnitBytes);
  }
  return at - base_ <= span_ && span_ - (at - base_) >= bytes ? at : 0;
}

std::uint64_t ArenaBlocks::note(Entries::iterator entry, std::uint64_t address,
                                std::uint64_t bytes) {
  living_[address] = bytes;
  if (entry->second.live++ == 0 && !entry->second.own) {
    shared_[entry->second.context].has_idle = false;
  }
  return address;
}

std::uint64_t ArenaBlocks::allocate(Handle context, std::uint64_t bytes) {
  if (bytes >= kOwnBytes) return 0;
  const auto found = shared_.find(context);
  if (found == shared_.end()) return 0;
  const std::uint64_t whole = round_up(bytes, kUnitBytes);
  const std::uint64_t address = found->second.free.take(whole);
  return address == 0 ? 0 : note(entry_of(address), address, whole);
}

std::optional<ArenaBlocks::Block> ArenaBlocks::propose(Handle context, std::uint64_t bytes,
                                                       bool own) {
  if (bytes > span_) return std::nullopt;
  Entry entry;
  entry.own = own || bytes >= kOwnBytes;
  entry.context = context;
  entry.bytes = entry.own
                    ? round_up(bytes, kUnitBytes)
                    : std::max(shared_[context].next_bytes, round_up(bytes, kSharedBytesFirst));
  const std::uint64_t address = find_gap(entry.bytes);
  if (address == 0) return std::nullopt;
  entries_[address] = entry;
  return Block{address, entry.bytes, context};
}

std::uint64_t ArenaBlocks::add(const Block& block, std::uint64_t bytes) {
  const auto at = entries_.find(block.address);
  at->second.mapped = true;
  used_ = true;
  mapped_bytes_ += block.bytes;
  const std::uint64_t whole = round_up(bytes, kUnitBytes);
  if (!at->second.own) {
    Shared& shared = shared_[block.context];
    shared.next_bytes = std::min(kSharedBytesMax, block.bytes * 2);
    if (whole < block.bytes) shared.free.give(block.address + whole, block.bytes - whole);
  }
  living_[block.address] = whole;
  at->second.live = 1;
  return block.address;
}

void ArenaBlocks::avoid(const Block& block) { entries_[block.address].context = 0; }

void ArenaBlocks::give_back(const Block& block) { entries_.erase(block.address); }

// The addresses stay in use until give_back().
ArenaBlocks::Block ArenaBlocks::take_out(Entries::iterator at) {
  const Block block{at->first, at->second.bytes, at->second.context};
  at->second.mapped = false;
  mapped_bytes_ -= block.bytes;
  return block;
}

std::optional<ArenaBlocks::Block> ArenaBlocks::block_of(std::uint64_t address) {
  if (living_.count(address) == 0) return std::nullopt;
  const auto at = entry_of(address);
  return Block{at->first, at->second.bytes, at->second.context};
}

std::optional<ArenaBlocks::Block> ArenaBlocks::release(std::uint64_t address) {
  const auto living = living_.find(address);
  if (living == living_.end()) return std::nullopt;
  const std::uint64_t bytes = living->second;
  living_.erase(living);
  const auto entry = entry_of(address);
  --entry->second.live;
  if (entry->second.own) return take_out(entry);
  Shared& shared = shared_[entry->second.context];
  shared.free.give(address, bytes);
  if (entry->second.live != 0) return std::nullopt;
  // One idle block is kept, so that a loop of small allocations maps nothing.
  if (!std::exchange(shared.has_idle, true)) return std::nullopt;
  shared.free.remove(entry->first, entry->second.bytes);
  return take_out(entry);
}

std::vector<ArenaBlocks::Block> ArenaBlocks::take_context(Handle context) {
  std::vector<Block> blocks;
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (at->second.context != context || !at->second.mapped) continue;
    blocks.push_back(take_out(at));
    const std::uint64_t end = blocks.back().address + blocks.back().bytes;
    std::erase_if(living_, [&](const auto& each) {
      return each.first >= blocks.back().address && each.first < end;
    });
  }
  shared_.erase(context);
  return blocks;
}

}  // namespace gpurun::client
