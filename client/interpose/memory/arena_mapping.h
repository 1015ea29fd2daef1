// ArenaMapping: how a block of the host arena gets its memory, here and in the worker.
//
// A worker of the same machine maps blocks of this process's memory file (docs/adr/0040). For
// another worker, a block is ordinary memory of this process until the device is to reach it. Then
// the worker maps memory of its own, and the session keeps the two alike (docs/adr/0042). For
// registered memory, every worker maps memory of its own. The block's addresses here then stay
// without memory.
//
// Any thread, after open(). One thread at a time maps blocks and makes copies.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "client/host_memory/arena_blocks.h"
#include "client/host_memory/arena_file.h"
#include "client/interpose/call/forward.h"
#include "protocol/calls/host_arena.h"

namespace gpurun::client::interpose {

// Prepares the session for copies of memory in the worker. False: there is no thread for that. May
// be called again.
bool open_host_mirror(Session& session);

// Where an arena lies.
struct ArenaPlace {
  std::uint64_t base = 0;
  std::uint64_t span = 0;
};

// What a mapped block has.
enum class BlockMemory : std::uint8_t {
  kShared,   // The memory file's, here and in the worker.
  kPrivate,  // This process's alone.
  kCopied,   // As kPrivate, and a copy in the worker.
  kView      // No memory here, and a copy of registered memory in the worker.
};

class ArenaMapping {
 public:
  using Block = ArenaBlocks::Block;

  // Once. kUnavailable, or another error of the system: there can be no arena.
  Status open(Session& session);
  // Blocks begin as kPrivate, and otherwise as kShared.
  bool mirrored() const noexcept { return mirrored_; }

  // Maps the block. Returns 0, or a CUresult. ALREADY_MAPPED: its addresses are in use. `*earlier`
  // becomes the failure of an earlier call, if one is known now, or the end of the session.
  int map(const EntryContext& here, std::uint16_t code, const Block& block, const ArenaPlace& place,
          int* earlier) const;
  // Keeps the addresses of a kView from other uses. Results as map().
  static int reserve(const Block& block);
  // Makes the worker's copy of `memory`, for a kPrivate or a reserved block. Results as map(). An
  // error leaves the block as it was.
  int make_copy(const EntryContext& here, std::uint16_t code, const Block& block,
                const ArenaPlace& place, std::uint64_t memory, int* earlier);
  // Ends the block. Waits for the worker, so that no other block is mapped there before. Returns
  // the failure of an earlier call, or 0.
  static int unmap(const EntryContext& here, const Block& block, const ArenaPlace& place,
                   BlockMemory memory);
  // Ends the block here. Its end in the worker comes with that of its context.
  static void unmap_here(const Block& block, BlockMemory memory);

 private:
  bool mirrored_ = false;
  bool mirror_is_open_ = false;
  ArenaFile file_;  // Without a file, if mirrored.
};

}  // namespace gpurun::client::interpose
