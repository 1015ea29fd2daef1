// ArenaBlocks: which addresses of the host arena are in use (docs/adr/0040). Blocks are what client
// and worker map and register at once. The client places allocations inside them.
//
// It keeps records only, touches no memory and calls nothing. One thread at a time. The owner
// locks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "client/log/handles.h"
#include "client/process/free_ranges.h"

namespace gpurun::client {

class ArenaBlocks {
 public:
  // Sizes and addresses of allocations are multiples of this, as pinned memory of drivers is.
  static constexpr std::uint64_t kUnitBytes = 4096;
  // Blocks begin at multiples of this, with at least a unit between two of them. So no allocation
  // crosses the border of two registrations, and an overrun meets no mapping.
  static constexpr std::uint64_t kBlockUnitBytes = std::uint64_t{2} << 20;
  // The block of a context's first small allocation, and the largest of them. Each is twice the one
  // before.
  static constexpr std::uint64_t kSharedBytesFirst = std::uint64_t{2} << 20;
  static constexpr std::uint64_t kSharedBytesMax = std::uint64_t{32} << 20;
  // An allocation from here on has a block of its own, which ends with it.
  static constexpr std::uint64_t kOwnBytes = std::uint64_t{8} << 20;

  struct Block {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;  // In whole units.
    Handle context = 0;       // It holds allocations of this context only.
  };

  // Addresses from `base` on. `base` is a multiple of kBlockUnitBytes.
  ArenaBlocks(std::uint64_t base, std::uint64_t span) : base_(base), span_(span) {}

  // Returns the address of `bytes` (over 0) in a block of `context`. 0: none has room.
  std::uint64_t allocate(Handle context, std::uint64_t bytes);

  // Chooses a block for an allocation of `bytes` and keeps its addresses. The caller maps it, and
  // then calls add(), avoid() or give_back(). Nothing: no addresses are left.
  // `own`: the block has room for nothing else, however small it is.
  std::optional<Block> propose(Handle context, std::uint64_t bytes, bool own = false);
  // The block is mapped. Returns the address of the allocation that it was proposed for.
  std::uint64_t add(const Block& block, std::uint64_t bytes);
  // The addresses are in use by something else. They are not proposed again.
  void avoid(const Block& block);
  // The addresses are free again: the block was unmapped, or could not be registered.
  void give_back(const Block& block);

  // Ends the allocation at `address`. Returns a block that is to be unmapped, and then given back.
  std::optional<Block> release(std::uint64_t address);
  // The context ends, and its allocations with it. Returns its blocks, as release().
  std::vector<Block> take_context(Handle context);

  // The mapped block of the allocation at `address`.
  std::optional<Block> block_of(std::uint64_t address);
  // Whether a block was ever added.
  bool was_used() const { return used_; }
  // Of all mapped blocks.
  std::uint64_t mapped_bytes() const { return mapped_bytes_; }

 private:
  struct Entry {
    std::uint64_t bytes = 0;
    Handle context = 0;
    std::size_t live = 0;  // Allocations in it.
    bool own = false;      // Of one allocation.
    bool mapped = false;
  };
  using Entries = std::map<std::uint64_t, Entry>;  // By address.
  struct Shared {
    FreeRanges free;
    std::uint64_t next_bytes = kSharedBytesFirst;
    bool has_idle = false;  // A block without an allocation is kept.
  };
  Entries::iterator entry_of(std::uint64_t address);
  std::uint64_t find_gap(std::uint64_t bytes) const;
  std::uint64_t note(Entries::iterator entry, std::uint64_t address, std::uint64_t bytes);
  Block take_out(Entries::iterator at);

  const std::uint64_t base_;
  const std::uint64_t span_;
  Entries entries_;
  std::unordered_map<Handle, Shared> shared_;                // By context.
  std::unordered_map<std::uint64_t, std::uint64_t> living_;  // Bytes of allocations, by address.
  std::uint64_t mapped_bytes_ = 0;
  bool used_ = false;
};

}  // namespace gpurun::client
