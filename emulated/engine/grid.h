// Grid: one launch while it runs, with the state that its blocks share. The engine decides which
// threads run the blocks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "emulated/engine/engine.h"

namespace gpurun::emulated {

class Block;

// The memory of cooperative_groups' grid barrier, which kernels find by %envreg1 and %envreg2. It
// holds a size, then the barrier word (cooperative_groups/details/helpers.h, grid_workspace).
struct GridWorkspace {
  static constexpr std::uint32_t kBytes = 256;
  alignas(64) std::uint32_t words[kBytes / 4] = {kBytes};
};

struct Grid {
  Grid(const LaunchRequest& launch, Engine::Done when_done, std::uint64_t grid_id);

  // Fails the grid. Only the first failure counts. From then on the grid's threads stop at their
  // next wait. `block` and `thread` may be null. Any thread.
  void fail(int code, std::string message, const std::uint32_t* block = nullptr,
            const std::uint32_t* thread = nullptr, std::uint64_t address = 0);
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }
  // The coordinates of block `index` in start order, in which clusters follow one another.
  void block_id(std::uint64_t index, std::uint32_t id[3]) const;
  // How the grid ended. Only after its last block.
  GridResult take_result();
  // "reduce (grid 4x1x1, block 256x1x1)"
  std::string describe() const;
  // " together with kernel root, which launched it (...)". Empty for a grid that the host launched.
  std::string describe_family() const;

  const LaunchRequest request;
  Engine::Done done;
  const std::uint64_t id;
  const std::uint64_t block_count;
  const std::uint32_t block_threads;
  const std::uint32_t cluster_blocks;
  std::uint32_t sm_count = 1;
  std::unique_ptr<GridWorkspace> workspace;  // Cooperative launches only.
  std::atomic<std::uint64_t> next_block{0};

  // Guarded by the engine's mutex from here on. Blocks that yielded or wait for their first turn. A
  // list, because an empty list has no memory.
  std::list<std::unique_ptr<Block>> waiting;
  std::uint64_t resident_max = 1;  // Bound of blocks that have started and not ended.
  std::uint64_t finished = 0;
  std::uint32_t fruitless = 0;  // Turns since a block last started or finished.
  int hands = 0;                // Threads that work on it now.
  bool listed = true;           // In the engine's list of active grids.
  bool open = true;             // Pool threads may take part.
  bool report = false;          // The watchdog asks for its state.
  std::chrono::steady_clock::time_point started;
  std::uint32_t reports = 0;

 private:
  std::atomic<bool> stop_{false};
  std::mutex result_mutex_;
  GridResult result_;
};

}  // namespace gpurun::emulated
