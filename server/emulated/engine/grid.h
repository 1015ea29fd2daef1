// Grid: one launch while it runs. Holds what its blocks share; who runs them is the engine's
// business.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "server/emulated/engine/engine.h"

namespace gpurun::emulated {

class Block;

// What cooperative_groups' grid barrier works on, by way of %envreg1 and %envreg2: a size, then the
// barrier word (cooperative_groups/details/helpers.h, grid_workspace).
struct GridWorkspace {
  static constexpr std::uint32_t kBytes = 256;
  alignas(64) std::uint32_t words[kBytes / 4] = {kBytes};
};

struct Grid {
  Grid(const LaunchRequest& launch, Engine::Done when_done, std::uint64_t grid_id);

  // The first failure of the grid counts; from then on its threads stop at their next wait.
  // `block` and `thread` may be null. Any thread.
  void fail(int code, std::string message, const std::uint32_t* block = nullptr,
            const std::uint32_t* thread = nullptr, std::uint64_t address = 0);
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }
  // Coordinates of block `index` in the order in which blocks start: clusters one after the other.
  void block_id(std::uint64_t index, std::uint32_t id[3]) const;
  // After the last block: how the grid ended.
  GridResult take_result();
  // "reduce (grid 4x1x1, block 256x1x1)"
  std::string describe() const;
  // " together with kernel root, which launched it (...)"; empty for what the host launched.
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

  // Guarded by the engine's mutex from here on.
  // Blocks that gave way, or wait for their first turn. A list: empty, it has no memory.
  std::list<std::unique_ptr<Block>> waiting;
  std::uint64_t resident_max = 1;  // Blocks that have started and not ended, at most.
  std::uint64_t finished = 0;
  std::uint32_t fruitless = 0;  // Turns since a block last started or finished.
  int hands = 0;                // Threads that work on it now.
  bool listed = true;           // In the engine's list of active grids.
  bool open = true;             // Pool threads may take part.
  bool report = false;          // The watchdog wants to know where it is.
  std::chrono::steady_clock::time_point started;
  std::uint32_t reports = 0;

 private:
  std::atomic<bool> stop_{false};
  std::mutex result_mutex_;
  GridResult result_;
};

}  // namespace gpurun::emulated
