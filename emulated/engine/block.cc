// Life of a block, and the choice of the thread that runs next. The waits of threads are in
// block_waits.cc.
#include "emulated/engine/block.h"

#include <signal.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "emulated/engine/grid.h"

namespace gpurun::emulated {

namespace {

// Polls of one thread before the others get a turn.
constexpr std::int32_t kPollBudget = 32;
// Turns of all polling threads before the host thread looks at other blocks.
constexpr std::uint32_t kPollRounds = 4;
// A thread that polls alone continues at once, except after multiples of this.
constexpr std::uint32_t kSolitaryPolls = 16;
// printf's conversion of a double is the deepest run-time function.
constexpr std::size_t kRuntimeStackBytes = 24 * 1024;
constexpr std::size_t kStackBytesLeast = 64 * 1024;

std::uint32_t lane_mask(std::uint32_t lanes) {
  return lanes >= kWarpLanes ? ~std::uint32_t{0} : (std::uint32_t{1} << lanes) - 1;
}

}  // namespace

BlockRunner::BlockRunner(std::uint32_t sm_id) : sm_id_(sm_id), catcher_(landed, this) {}

void BlockRunner::landed(void* self) {
  auto* runner = static_cast<BlockRunner*>(self);
  runner->block_->landed(*runner->running_);
}

Block::Block(std::size_t stack_bytes) : stack_bytes_(stack_bytes) {}

Block::~Block() = default;

std::unique_ptr<Block> Block::create(std::size_t stack_bytes) {
  std::unique_ptr<Block> block(new Block(stack_bytes));
  if (!block->shared_.commit(1) || !block->add_fibers()) return nullptr;
  return block;
}

std::size_t Block::stack_class(std::uint32_t code_bytes) {
  return std::bit_ceil(std::max(kStackBytesLeast, code_bytes + kRuntimeStackBytes));
}

bool Block::add_fibers() {
  std::unique_ptr<StackSlab> slab = StackSlab::create(stack_bytes_);
  if (slab == nullptr) return false;
  for (std::uint32_t i = StackSlab::kStacks; i-- > 0;) {
    fibers_.push_back(
        std::make_unique<Fiber>(slab->low(i), slab->high(i), fiber_main, this, group_));
    idle_.push_back(fibers_.back().get());
  }
  slabs_.push_back(std::move(slab));
  return true;
}

bool Block::begin(Grid& grid, std::uint64_t index, std::shared_ptr<Cluster> cluster) {
  if (group_.worn()) {
    forget_fibers();
    group_.renew();
  }
  const LaunchRequest& request = grid.request;
  const std::uint32_t dynamic_start = (request.static_shared_bytes + 15) & ~std::uint32_t{15};
  const std::size_t shared_bytes = request.dynamic_shared_bytes == 0
                                       ? request.static_shared_bytes
                                       : std::size_t{dynamic_start} + request.dynamic_shared_bytes;
  if (!shared_.commit(shared_bytes)) {
    grid.fail(kGridOutOfMemory, "no memory for the block's shared memory");
    return false;
  }
  grid_ = &grid;
  cluster_ = std::move(cluster);
  context_.shared = shared_.base();
  context_.params = static_cast<const std::uint8_t*>(request.params);
  grid.block_id(index, context_.block_id);
  const Extent& block = request.block;
  const Extent& whole = request.grid;
  context_.block_dim[0] = block.x;
  context_.block_dim[1] = block.y;
  context_.block_dim[2] = block.z;
  context_.grid_dim[0] = whole.x;
  context_.grid_dim[1] = whole.y;
  context_.grid_dim[2] = whole.z;
  context_.dynamic_shared_bytes = request.dynamic_shared_bytes;
  context_.total_shared_bytes = static_cast<std::uint32_t>(shared_bytes);
  context_.shared_window_bytes =
      std::max<std::uint32_t>(1024, static_cast<std::uint32_t>(shared_bytes));
  context_.param_bytes = request.param_bytes;
  context_.grid_id = grid.id;
  context_.grid_workspace =
      grid.workspace == nullptr ? 0 : reinterpret_cast<std::uint64_t>(grid.workspace->words);
  context_.engine = this;

  thread_count_ = live_threads_ = grid.block_threads;
  warp_count_ = (thread_count_ + kWarpLanes - 1) / kWarpLanes;
  for (std::uint32_t w = 0; w < warp_count_; ++w) {
    Warp& warp = warps_[w];
    warp.live = lane_mask(thread_count_ - w * kWarpLanes);
    warp.ready = warp.polling = warp.at_cluster = warp.exchanged = 0;
    warp.last_lane = warp.group_count = warp.converged_count = 0;
    warp.steps = warp.load_steps = warp.passed_over = warp.recalls = 0;
  }
  for (std::uint32_t used = barriers_used_; used != 0; used &= used - 1) {
    barriers_[std::countr_zero(used)] = Barrier{};
  }
  barriers_used_ = 0;
  next_thread_ = polling_threads_ = cluster_threads_ = 0;
  warps_ready_ = warps_resting_ = current_warp_ = poll_rounds_ = 0;
  failing_code_ = 0;
  return true;
}

Block::Outcome Block::step(BlockRunner& runner) {
  runner_ = &runner;
  if (next_thread_ == 0) {
    context_.sm_id = runner.sm_id_;
    context_.sm_count = grid_->sm_count;
  }
  poll_rounds_ = 0;
  promote_polling();
  Fiber* to = target_of(next());
  if (to == &runner.root_) return outcome_;
  runner.block_ = this;
  runner.running_ = to;
  runner.catcher_.arm();
  runner.root_.switch_to(*to);
  runner.catcher_.disarm();
  return outcome_;
}

void Block::forget_fibers() {
  idle_.clear();
  for (const auto& fiber : fibers_) {
    fiber->rebuild();
    idle_.push_back(fiber.get());
  }
}

void Block::abandon() {
  forget_fibers();
  grid_ = nullptr;
  cluster_.reset();
}

void Block::fiber_main(Fiber& self, void* block) {
  for (;;) static_cast<Block*>(block)->run_threads(self);
}

// Threads that never wait run here one after the other, with no switch between them.
void Block::run_threads(Fiber& self) {
  Fiber* to = nullptr;
  if (grid_->request.regions != nullptr) {
    run_regions(self);
    to = &runner_->root_;
  }
  while (to == nullptr) {
    place(self.thread);
    grid_->request.function(&self.thread);
    ended(self);
    to = next();
  }
  idle_.push_back(&self);
  runner_->running_ = to;
  self.switch_to(*to);
}

void Block::place(ThreadContext& thread) {
  thread.block = &context_;
  thread.thread_linear = next_thread_++;
  place_by_number(thread);
  thread.poll_budget = kPollBudget;
  thread.last_error = 0;
  thread.caller = nullptr;
}

void Block::place_by_number(ThreadContext& thread) const {
  const std::uint32_t x_threads = context_.block_dim[0];
  const std::uint32_t y_threads = context_.block_dim[1];
  const std::uint32_t row = thread.thread_linear / x_threads;
  thread.thread_id[0] = thread.thread_linear - row * x_threads;
  thread.thread_id[1] = row % y_threads;
  thread.thread_id[2] = row / y_threads;
}

bool Block::unstarted_in(std::uint32_t warp_index) const {
  return next_thread_ < thread_count_ && next_thread_ < (warp_index + 1) * kWarpLanes;
}

Fiber* Block::next_in_warp(Warp& warp) {
  // Round-robin, so that lanes that release each other do not starve a third.
  const std::uint32_t after = warp.ready & ~lane_mask(warp.last_lane + 1);
  const auto lane = static_cast<std::uint32_t>(std::countr_zero(after != 0 ? after : warp.ready));
  warp.last_lane = lane;
  warp.ready &= ~(std::uint32_t{1} << lane);
  if (warp.ready == 0) warps_ready_ &= ~(std::uint32_t{1} << current_warp_);
  return fiber_of_[current_warp_ * kWarpLanes + lane];
}

Fiber* Block::next() {
  if (live_threads_ == 0) {
    outcome_ = Outcome::kFinished;
    if (failing_code_ != 0) {
      grid_->fail(failing_code_, failing_message_, context_.block_id, failing_thread_);
    }
    return &runner_->root_;
  }
  while (!grid_->stopped()) {
    // One warp continues as long as it can, so that its operations find all lanes soon.
    Warp& warp = warps_[current_warp_];
    if (warp.ready != 0) return next_in_warp(warp);
    if (unstarted_in(current_warp_)) return nullptr;
    if (warp.converged_count > 0 && settle_converged_groups()) continue;
    if (failing_code_ != 0) {
      grid_->fail(failing_code_, failing_message_, context_.block_id, failing_thread_);
      break;
    }
    if (next_thread_ < thread_count_) {
      current_warp_ = next_thread_ / kWarpLanes;
      return nullptr;
    }
    if (warps_ready_ != 0) {
      const std::uint32_t after = warps_ready_ & ~lane_mask(current_warp_ + 1);
      current_warp_ =
          static_cast<std::uint32_t>(std::countr_zero(after != 0 ? after : warps_ready_));
      continue;
    }
    if (settle()) continue;
    const bool polls = polling_threads_ > 0 || warps_resting_ != 0;
    if (polls && poll_rounds_++ < kPollRounds) {
      promote_polling();
      continue;
    }
    if (polls || (cluster_threads_ > 0 && grid_->cluster_blocks > 1)) {
      outcome_ = Outcome::kWaiting;
      return &runner_->root_;
    }
    grid_->fail(kGridLaunchTimeout, "deadlock: " + describe(), context_.block_id);
  }
  outcome_ = Outcome::kStopped;
  return &runner_->root_;
}

Fiber* Block::target_of(Fiber* chosen) {
  if (chosen != nullptr) return chosen;
  if (idle_.empty() && !add_fibers()) {
    grid_->fail(kGridOutOfMemory, "no memory for the stacks of its threads", context_.block_id);
    outcome_ = Outcome::kStopped;
    return &runner_->root_;
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void Block::suspend(Fiber& self) {
  fiber_of_[self.thread.thread_linear] = &self;
  Fiber* to = target_of(next());
  if (to == &self) return;
  runner_->running_ = to;
  self.switch_to(*to);
}

bool Block::others_can_run(std::uint32_t warp_index) const {
  return warps_ready_ != 0 || warps_resting_ != 0 || polling_threads_ > 0 ||
         next_thread_ < thread_count_ || warps_[warp_index].converged_count > 0;
}

void Block::yield(Fiber& self) {
  self.thread.poll_budget = kPollBudget;
  const std::uint32_t w = self.thread.thread_linear / kWarpLanes;
  if (!grid_->stopped() && !others_can_run(w) && ++poll_rounds_ % kSolitaryPolls != 0) return;
  warps_[w].polling |= std::uint32_t{1} << (self.thread.thread_linear % kWarpLanes);
  ++polling_threads_;
  suspend(self);
}

void Block::sleep(Fiber& self) {
  self.thread.poll_budget = kPollBudget;
  const std::uint32_t w = self.thread.thread_linear / kWarpLanes;
  warps_[w].polling |= std::uint32_t{1} << (self.thread.thread_linear % kWarpLanes);
  ++polling_threads_;
  suspend(self);
}

void Block::promote_polling() {
  warps_resting_ = 0;
  if (polling_threads_ == 0) return;
  for (std::uint32_t w = 0; w < warp_count_; ++w) {
    Warp& warp = warps_[w];
    if (warp.polling == 0) continue;
    warp.ready |= warp.polling;
    warp.polling = 0;
    warps_ready_ |= std::uint32_t{1} << w;
  }
  polling_threads_ = 0;
}

void Block::exit(Fiber& self) {
  ended(self);
  Fiber* to = target_of(next());
  idle_.push_back(&self);
  runner_->running_ = to;
  self.abandon_to(*to);
}

void Block::fail(Fiber& self, int code, std::string message) {
  place_by_number(self.thread);  // One of several threads that run together.
  grid_->fail(code, std::move(message), context_.block_id, self.thread.thread_id);
  outcome_ = Outcome::kStopped;
  self.abandon_to(runner_->root_);
}

void Block::fail_after_warp(Fiber& self, int code, std::string message) {
  if (failing_code_ == 0) {
    failing_code_ = code;
    failing_message_ = std::move(message);
    std::copy_n(self.thread.thread_id, 3, failing_thread_);
  }
  std::string().swap(message);  // Nothing is destroyed on the way out.
  exit(self);
}

void Block::landed(Fiber& faulty) {
  const Fault& fault = runner_->catcher_.fault();
  place_by_number(faulty.thread);
  faulty.claim_local_memory();
  char text[160];
  int code = kGridIllegalAddress;
  if (fault.signal == SIGSEGV && faulty.guards(fault.address)) {
    code = kGridHardwareStackError;
    std::snprintf(text, sizeof text, "a thread ran over its stack of %zu bytes", stack_bytes_);
  } else if (fault.signal == SIGSEGV || fault.signal == SIGBUS) {
    if (fault.signal == SIGBUS && fault.code == BUS_ADRALN) code = kGridMisalignedAddress;
    if (shared_.contains(fault.address)) {
      std::snprintf(text, sizeof text, "access to shared memory at offset %llu of %u bytes",
                    static_cast<unsigned long long>(
                        fault.address - reinterpret_cast<std::uint64_t>(context_.shared)),
                    context_.total_shared_bytes);
    } else {
      std::snprintf(text, sizeof text, "access to address 0x%llx, which is no device memory",
                    static_cast<unsigned long long>(fault.address));
    }
  } else if (fault.signal == SIGILL) {
    code = kGridIllegalInstruction;
    std::snprintf(text, sizeof text, "illegal instruction");
  } else {
    code = kGridLaunchFailed;
    std::snprintf(text, sizeof text, "arithmetic exception");
  }
  grid_->fail(code, text, context_.block_id, faulty.thread.thread_id, fault.address);
  outcome_ = Outcome::kStopped;
  faulty.abandon_to(runner_->root_);
}

std::uint32_t Block::count_lanes(std::uint32_t Warp::*lanes) const {
  std::uint32_t count = 0;
  for (std::uint32_t w = 0; w < warp_count_; ++w) {
    count += static_cast<std::uint32_t>(std::popcount(warps_[w].*lanes));
  }
  return count;
}

std::string Block::describe() const {
  std::string text = "block (" + std::to_string(context_.block_id[0]) + "," +
                     std::to_string(context_.block_id[1]) + "," +
                     std::to_string(context_.block_id[2]) + "), " + std::to_string(live_threads_) +
                     " of " + std::to_string(thread_count_) + " threads left";
  for (std::uint32_t used = barriers_used_; used != 0; used &= used - 1) {
    const auto id = static_cast<std::uint32_t>(std::countr_zero(used));
    const Barrier& barrier = barriers_[id];
    if (barrier.arrived == 0) continue;
    text += ", " + std::to_string(barrier.arrived) + " arrived at barrier " + std::to_string(id);
    if (barrier.expected != 0) text += " of " + std::to_string(barrier.expected);
  }
  std::uint32_t at_warp = 0;
  std::uint32_t converged = 0;
  for (std::uint32_t w = 0; w < warp_count_; ++w) {
    for (std::uint32_t g = 0; g < warps_[w].group_count; ++g) {
      at_warp += static_cast<std::uint32_t>(std::popcount(warps_[w].groups[g].arrived));
    }
    for (std::uint32_t g = 0; g < warps_[w].converged_count; ++g) {
      converged += static_cast<std::uint32_t>(std::popcount(warps_[w].converged[g].arrived));
    }
  }
  if (at_warp != 0) text += ", " + std::to_string(at_warp) + " wait for lanes of their warp";
  if (converged != 0) text += ", " + std::to_string(converged) + " step through shared memory";
  if (cluster_threads_ != 0) {
    text += ", " + std::to_string(cluster_threads_) + " wait for their cluster";
  }
  const std::uint32_t polling = count_lanes(&Warp::polling);
  if (polling != 0) text += ", " + std::to_string(polling) + " poll memory";
  return text;
}

}  // namespace gpurun::emulated
