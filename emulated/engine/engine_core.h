// EngineCore: the pool of threads behind Engine, and the choice of each thread's next task.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "emulated/engine/block.h"
#include "emulated/engine/engine.h"
#include "emulated/engine/fault.h"
#include "emulated/engine/grid.h"

namespace gpurun::emulated {

// Any thread.
class EngineCore {
 public:
  explicit EngineCore(const EngineOptions& options);
  ~EngineCore();

  // kResourceExhausted when not even one thread can be had.
  Status start();
  void submit(const LaunchRequest& request, Engine::Done done);
  GridResult run(const LaunchRequest& request);
  void cancel(const ContextRuntime* context, int code);
  EngineCounters counters() const;

 private:
  using Clock = std::chrono::steady_clock;
  using GridPtr = std::shared_ptr<Grid>;

  // One task for a thread.
  struct Task {
    GridPtr grid;
    std::unique_ptr<Block> block;  // To be continued. Null: start new blocks.
    std::unique_ptr<Block> spare;  // For the first new one. May be null.
    bool more_hands = false;       // Another thread would find work.
  };
  // How a thread's turn at a grid ended.
  struct Turn {
    std::uint64_t finished = 0;
    std::unique_ptr<Block> waiting;                // Yielded.
    std::vector<std::unique_ptr<Block>> siblings;  // Blocks of its cluster, not yet run.
    std::unique_ptr<Block> spare;
  };
  // How long a thread has found only blocks that poll.
  struct IdleBackOff {
    std::uint32_t turns = 0;
    Clock::time_point since;
  };

  GridPtr make_grid(const LaunchRequest& request, Engine::Done done);
  void enlist(const GridPtr& grid);
  void pool_main(std::uint32_t index);
  bool spawn_locked();
  void wake_one_locked();
  // Chooses the next task, from all grids or from `only`. Called with the mutex held.
  bool take(Grid* only, Task* task);
  bool take_from(const GridPtr& grid, Task* task);
  // Does the task. Called without the mutex. Returns whether anything except polling happened.
  bool work(Task task, BlockRunner& runner);
  std::uint64_t blocks_at_once(const Grid& grid, std::uint64_t run, Clock::duration elapsed) const;
  void start_blocks(Grid& grid, std::unique_ptr<Block> block, BlockRunner& runner, Turn* turn);
  bool start_cluster(Grid& grid, std::unique_ptr<Block>* block, std::uint64_t first, Turn* turn);
  std::unique_ptr<Block> get_block(Grid& grid);
  std::unique_ptr<Block> spare_block_locked(const Grid& grid);
  void settle(const GridPtr& grid, Turn turn, bool continued);
  void finish(const GridPtr& grid, std::list<std::unique_ptr<Block>> waiting);
  void keep_locked(std::unique_ptr<Block> block);
  void back_off_or_go_on(IdleBackOff* back_off, bool fruitful);
  void watch();
  Clock::time_point next_report(const Grid& grid) const;
  void report(Grid& grid, Clock::time_point now);

  const EngineOptions options_;
  const int threads_max_;
  std::unique_ptr<FaultHandlers> handlers_;

  mutable std::mutex mutex_;
  std::condition_variable work_cv_;
  std::vector<GridPtr> active_;
  std::size_t cursor_ = 0;
  std::atomic<std::uint32_t> active_count_{0};
  int idle_ = 0;
  int notified_ = 0;  // Idle threads that were woken and have not run yet.
  bool stopping_ = false;
  std::map<std::size_t, std::vector<std::unique_ptr<Block>>> spare_blocks_;
  std::size_t spare_stacks_ = 0;
  std::vector<std::thread> threads_;

  std::condition_variable watch_cv_;
  std::thread watch_thread_;
  // The watchdog wakes by itself. False: it sleeps until it is notified.
  bool watching_ = false;

  std::atomic<std::uint64_t> grid_ids_{0};
  std::atomic<std::uint64_t> blocks_{0};
  std::uint64_t wakes_ = 0;
  std::atomic<std::uint32_t> guests_{0};  // Threads inside run().
};

}  // namespace gpurun::emulated
