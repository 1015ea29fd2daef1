// Block: one CUDA thread block while it runs, and the scheduler of its threads. A thread is an
// ordinary function call until it has to wait. Then its fiber keeps it, and another thread runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulated/engine/cluster.h"
#include "emulated/engine/fault.h"
#include "emulated/engine/fiber.h"
#include "emulated/engine/shared_window.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

struct Grid;
class Block;

// The state that a host thread needs to run blocks. Created and used on that thread only.
class BlockRunner {
 public:
  explicit BlockRunner(std::uint32_t sm_id);

 private:
  friend class Block;
  static void landed(void* self);

  const std::uint32_t sm_id_;
  Fiber root_;  // The host thread's own stack.
  Block* block_ = nullptr;
  Fiber* running_ = nullptr;  // The fiber that runs, if one does.
  FaultCatcher catcher_;
};

// Used by one host thread at a time. Reused for one block after another, so that stacks are kept.
class Block {
 public:
  static constexpr std::uint32_t kWarps = kBlockThreadsMax / kWarpLanes;

  enum class Outcome {
    kFinished,  // Every thread has ended.
    // All remaining threads wait for something outside the block. Call step() again.
    kWaiting,
    kStopped,  // The grid has failed. Call abandon().
  };

  // nullptr when memory is short. `stack_bytes` must come from stack_class().
  static std::unique_ptr<Block> create(std::size_t stack_bytes);
  ~Block();

  // The stack that a thread gets when compiled code needs `code_bytes`. It has room for the
  // run-time functions, and is rounded up so that kernels can share blocks.
  static std::size_t stack_class(std::uint32_t code_bytes);
  std::size_t stack_bytes() const { return stack_bytes_; }
  std::size_t stacks() const { return fibers_.size(); }

  // Prepares block `index` of `grid`. False when memory is short. The grid has then failed.
  bool begin(Grid& grid, std::uint64_t index, std::shared_ptr<Cluster> cluster);
  // Runs until no thread of the block can run.
  Outcome step(BlockRunner& runner);
  // Forgets a block that will not be continued.
  void abandon();

  // The state of its threads: "block (3,0,0), 32 of 32 threads left, 31 arrived at barrier 0, 1
  // poll memory". Only between steps.
  std::string describe() const;

  // ---- For the run-time functions, on the fiber of the calling thread.
  void barrier_sync(Fiber& self, std::uint32_t id, std::uint32_t count);
  void barrier_arrive(std::uint32_t id, std::uint32_t count);
  std::uint32_t barrier_reduce(Fiber& self, std::uint32_t id, std::uint32_t count,
                               BarrierReduction reduction, bool value);
  void cluster_arrive(Fiber& self);
  void cluster_wait(Fiber& self);
  void warp(Fiber& self, std::uint32_t mask, WarpFunction function, const std::uint32_t* in,
            std::uint32_t* out);
  std::uint32_t active_mask(Fiber& self, const CodePosition& position);
  void step_together(Fiber& self, const CodePosition& position, bool is_load);
  void yield(Fiber& self);
  void sleep(Fiber& self);
  [[noreturn]] void exit(Fiber& self);
  // Fails the grid because of the calling thread, and ends that thread.
  [[noreturn]] void fail(Fiber& self, int code, std::string message);
  // As fail(), but the other threads of the warp still reach their own assertions first, as in
  // CUDA.
  [[noreturn]] void fail_after_warp(Fiber& self, int code, std::string message);
  Grid& grid() { return *grid_; }
  const BlockContext& context() const { return context_; }

 private:
  friend class BlockRunner;

  // Lanes of one warp that arrived at the same operation and wait for the others.
  struct WarpGroup {
    WarpFunction function;
    std::uint32_t mask;
    std::uint32_t arrived;
  };
  // Converged lanes: they wait at one position until the warp has nothing else to run.
  struct ConvergedGroup {
    const CodePosition* position;  // The first arrived lane's, on its stack.
    std::uint32_t arrived;
    std::uint32_t arrival;  // Smaller: has waited longer.
    bool is_load;           // A thread with only such steps may be polling.
  };
  struct Warp {
    std::uint32_t live = 0;     // Not ended. Threads that have not started are live.
    std::uint32_t ready = 0;    // May continue.
    std::uint32_t polling = 0;  // Yielded. Continues when nothing else can.
    std::uint32_t at_cluster = 0;
    // Regions: the region in which all live lanes continue, or kRegionMixed. `exchanged`: lanes
    // with results in exchanged_.
    std::uint32_t common_next = 0;
    std::uint32_t exchanged = 0;
    std::uint32_t last_lane = 0;
    std::uint32_t group_count = 0;
    std::uint32_t converged_count = 0;
    std::uint32_t arrivals = 0;
    // Since it last rested. `load_steps`: the latest ones in a row that only load.
    std::uint32_t steps = 0, load_steps = 0;
    // Weighted steps for which other groups have waited for the first one.
    std::uint32_t passed_over = 0;
    std::uint32_t recalls = 0;  // Turns given to polling lanes before the next group.
    WarpGroup groups[kWarpLanes];
    ConvergedGroup converged[kWarpLanes];
    WarpSlot slots[kWarpLanes];
  };
  struct Barrier {
    std::uint32_t arrived = 0;
    std::uint32_t expected = 0;  // 0: all live threads.
    std::uint32_t warps = 0;     // Warps with waiting lanes.
    std::uint32_t true_count = 0;
    std::uint32_t reduced = 0;  // Arrivals with a value.
    BarrierReduction reduction = BarrierReduction::kPopulation;
    std::uint32_t waiting[kWarps] = {};
  };

  explicit Block(std::size_t stack_bytes);
  [[noreturn]] static void fiber_main(Fiber& self, void* block);
  void run_threads(Fiber& self);
  void forget_fibers();
  void place(ThreadContext& thread);
  bool add_fibers();

  // The fiber to run next. It is a fiber with a wait that is over, or `nullptr` for a thread that
  // has not started. It is the runner's own when nothing can run, and outcome_ says why.
  Fiber* next();
  Fiber* next_in_warp(Warp& warp);
  bool settle();
  bool settle_converged_groups();
  bool recall_polling(std::uint32_t warp_index);
  bool takes_rest(std::uint32_t warp_index);
  std::uint32_t next_converged_group(Warp& warp) const;
  void come_to_position(Fiber& self, const CodePosition& position, bool is_load);
  bool settle_partial_barriers();
  bool settle_mixed_groups();
  bool settle_cluster();
  void promote_polling();
  // Leaves the calling fiber, because its thread waits. Returns when it is that thread's turn
  // again.
  void suspend(Fiber& self);
  Fiber* target_of(Fiber* chosen);
  void ended(Fiber& self);
  bool others_can_run(std::uint32_t warp_index) const;
  void thread_ended(std::uint32_t thread);
  void release_without_the_ended();
  bool come_to_barrier(std::uint32_t thread, std::uint32_t id, std::uint32_t count);
  bool come_to_reduction(std::uint32_t thread, std::uint32_t id, std::uint32_t count,
                         BarrierReduction reduction, bool value);
  bool come_to_warp(std::uint32_t thread, std::uint32_t mask, WarpFunction function,
                    const std::uint32_t* in, std::uint32_t* out);
  void release_barrier(Barrier& barrier);
  bool arrive(std::uint32_t id, std::uint32_t count, Barrier** barrier);
  void complete_group(Warp& warp, std::uint32_t group_index, std::uint32_t present);
  bool unstarted_in(std::uint32_t warp_index) const;
  void landed(Fiber& faulty);

  // The fast form: block_regions.cc.
  void run_regions(Fiber& self);
  bool prepare_regions(Fiber& self);
  void run_together(ThreadContext& thread);
  void run_apart(ThreadContext& thread);
  bool pass_together(const RegionCut& cut);
  void reduce_together(const RegionCut& cut);
  bool exchange_together(const RegionCut& cut);
  bool masks_agree(const RegionCut& cut, std::uint32_t warp_index, std::uint32_t lanes) const;
  WarpWords words_of(const RegionCut& cut, std::uint32_t warp_index) const;
  void exchange(const RegionCut& cut, std::uint32_t first_warp, std::uint32_t last_warp,
                std::uint32_t lanes);
  std::uint32_t common_next(std::uint32_t begin, std::uint32_t end) const;
  void come_to_cuts(std::uint32_t begin, std::uint32_t end, std::uint32_t next);
  bool come_as_warp(std::uint32_t begin, std::uint32_t end, std::uint32_t next);
  bool come_to_barrier_together(const RegionCut& cut, std::uint32_t warp_index,
                                std::uint32_t lanes);
  void come_to_cut(std::uint32_t lane);
  bool come_to_exchange(const RegionCut& cut, std::uint32_t lane);
  std::uint32_t take_ready(std::uint32_t begin);
  void take_results(std::uint32_t warp_index, std::uint32_t lanes);
  // Sets a thread's coordinates from its number.
  void place_by_number(ThreadContext& thread) const;
  std::uint32_t count_lanes(std::uint32_t Warp::*lanes) const;

  const std::size_t stack_bytes_;
  SharedWindow shared_;
  BlockContext context_{};
  Grid* grid_ = nullptr;
  std::shared_ptr<Cluster> cluster_;
  BlockRunner* runner_ = nullptr;
  Outcome outcome_ = Outcome::kFinished;

  std::uint32_t thread_count_ = 0;
  std::uint32_t warp_count_ = 0;
  std::uint32_t next_thread_ = 0;  // First thread that has not started.
  std::uint32_t live_threads_ = 0;
  std::uint32_t polling_threads_ = 0;
  std::uint32_t cluster_threads_ = 0;  // Threads that wait for the cluster's barrier.
  std::uint32_t warps_ready_ = 0;      // Warps with ready lanes.
  // Warps that rest: their converged groups wait until all others had a turn.
  std::uint32_t warps_resting_ = 0;
  std::uint32_t current_warp_ = 0;
  std::uint32_t poll_rounds_ = 0;  // Since something other than polling happened.
  std::uint32_t barriers_used_ = 0;
  int failing_code_ = 0;  // fail_after_warp: the grid stops when this warp cannot run.
  std::string failing_message_;
  std::uint32_t failing_thread_[3] = {};

  Warp warps_[kWarps];
  Barrier barriers_[kBarriersPerBlock];
  Fiber* fiber_of_[kBlockThreadsMax];        // Fibers of threads that wait.
  std::uint32_t results_[kBlockThreadsMax];  // Results of waits, stored by the code that ended the
                                             // wait.
  std::vector<std::unique_ptr<StackSlab>> slabs_;
  FiberGroup group_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;

  struct Free {
    void operator()(std::uint8_t* memory) const;
  };
  std::unique_ptr<std::uint8_t, Free> region_memory_;
  std::size_t region_bytes_ = 0;
  RegionFrame region_frame_{};
  // Words of lanes that reach an exchange one by one.
  struct LaneWords {
    std::uint32_t in[kExchangeInputs];
    std::uint32_t out[kExchangeResults];
  };
  LaneWords* exchanged_ = nullptr;
};

}  // namespace gpurun::emulated
