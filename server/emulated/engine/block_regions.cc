// A block whose kernel has its fast form: regions run for all lanes, one after the other, as long
// as the lanes agree; where they do not, each waits as a thread would.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "server/emulated/engine/block.h"
#include "server/emulated/engine/grid.h"

namespace gpurun::emulated {

namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void Block::Free::operator()(std::uint8_t* memory) const { std::free(memory); }

// Runs the whole block; outcome_ says how it ended.
void Block::run_regions(Fiber& self) {
  next_thread_ = thread_count_;
  if (!prepare_regions(self)) {
    outcome_ = Outcome::kStopped;
    return;
  }
  outcome_ = Outcome::kFinished;
  run_together(self.thread);
  self.claim_local_memory();
}

bool Block::prepare_regions(Fiber& self) {
  const RegionProgram& program = *grid_->request.regions;
  const std::size_t lanes = (thread_count_ + kWarpLanes - 1) / kWarpLanes * kWarpLanes;
  const std::size_t slots = aligned(lanes * program.slot_bytes);
  const std::size_t local = aligned(lanes * program.local_bytes);
  const std::size_t numbers = aligned(lanes * sizeof(std::uint32_t));
  const std::size_t addresses = aligned(lanes * sizeof(std::uint64_t));
  const std::size_t bytes = slots + local + 2 * numbers + 2 * addresses;
  if (bytes > region_bytes_) {
    region_memory_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, bytes)));
    region_bytes_ = region_memory_ == nullptr ? 0 : bytes;
    if (region_memory_ == nullptr) {
      grid_->fail(kGridOutOfMemory, "no memory for what its threads keep", context_.block_id);
      return false;
    }
  }
  std::uint8_t* at = region_memory_.get();
  const auto take = [&at](std::size_t size) {
    std::uint8_t* const start = at;
    at += size;
    return start;
  };
  region_frame_.slots = take(slots);
  region_frame_.local = take(local);
  region_frame_.next = reinterpret_cast<std::uint32_t*>(take(numbers));
  region_frame_.operand = reinterpret_cast<std::uint32_t*>(take(numbers));
  region_frame_.in = reinterpret_cast<std::uint64_t*>(take(addresses));
  region_frame_.out = reinterpret_cast<std::uint64_t*>(take(addresses));
  region_frame_.result = results_;
  region_frame_.capacity = lanes;
  ThreadContext& thread = self.thread;
  thread.block = &context_;
  thread.thread_linear = 0;
  thread.last_error = 0;
  thread.stack_low = reinterpret_cast<std::uint64_t>(region_frame_.local);
  thread.stack_high = thread.stack_low + lanes * program.local_bytes;
  return true;
}

void Block::run_together(ThreadContext& thread) {
  const RegionProgram& program = *grid_->request.regions;
  std::uint32_t region = 0;
  while (!grid_->stopped()) {
    std::uint32_t next = program.functions[region](&thread, &region_frame_, 0, thread_count_);
    const bool each_has_said = next == kRegionMixed;
    if (each_has_said) next = common_next();
    if (next == kRegionEnded) {
      live_threads_ = 0;
      return;
    }
    if (next == kRegionMixed || !pass_together(program.cuts[next - 1])) {
      if (!each_has_said) std::fill_n(region_frame_.next, thread_count_, next);
      return run_apart(thread);
    }
    region = next;
  }
  outcome_ = Outcome::kStopped;
}

// Where all lanes continue, or kRegionMixed.
std::uint32_t Block::common_next() const {
  const std::uint32_t* const next = region_frame_.next;
  const std::uint32_t first = next[0];
  std::uint32_t differences = 0;
  for (std::uint32_t lane = 1; lane < thread_count_; ++lane) differences |= next[lane] ^ first;
  return differences == 0 ? first : kRegionMixed;
}

// All threads of the block have come to this cut. False: they do not all go on; nothing was done.
bool Block::pass_together(const RegionCut& cut) {
  if (cut.kind == CutKind::kWarp) return exchange_together(cut);
  const std::uint32_t whole = (thread_count_ + kWarpLanes - 1) / kWarpLanes * kWarpLanes;
  if (cut.count != 0 && cut.count != thread_count_ && cut.count != whole) return false;
  if (barriers_[cut.id % kBarriersPerBlock].arrived != 0) return false;
  if (cut.kind == CutKind::kReduction) reduce_together(cut);
  return true;
}

void Block::reduce_together(const RegionCut& cut) {
  std::uint32_t value = 0;
  for (std::uint32_t lane = 0; lane < thread_count_; ++lane) {
    value += region_frame_.operand[lane] != 0 ? 1 : 0;
  }
  const auto reduction = static_cast<BarrierReduction>(cut.reduction);
  if (reduction == BarrierReduction::kAnd) value = value == thread_count_;
  if (reduction == BarrierReduction::kOr) value = value != 0;
  std::fill_n(results_, thread_count_, value);
}

// Where each warp's lanes name all of its lanes.
bool Block::exchange_together(const RegionCut& cut) {
  for (std::uint32_t w = 0; w < warp_count_; ++w) {
    const std::uint32_t* const masks = region_frame_.operand + w * kWarpLanes;
    const std::uint32_t live = warps_[w].live;
    if ((live & ~masks[0]) != 0) return false;
    std::uint32_t differences = 0;
    const std::uint32_t lanes = std::min(kWarpLanes, thread_count_ - w * kWarpLanes);
    for (std::uint32_t lane = 1; lane < lanes; ++lane) differences |= masks[lane] ^ masks[0];
    if (differences != 0) return false;
  }
  if (cut.function == nullptr) return true;
  for (std::uint32_t w = 0; w < warp_count_; ++w) {
    WarpSlot* const slots = warps_[w].slots;
    const std::uint32_t lanes = std::min(kWarpLanes, thread_count_ - w * kWarpLanes);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const std::uint32_t index = w * kWarpLanes + lane;
      slots[lane] = {reinterpret_cast<const std::uint32_t*>(region_frame_.in[index]),
                     reinterpret_cast<std::uint32_t*>(region_frame_.out[index])};
    }
    cut.function(warps_[w].live, slots);
  }
  return true;
}

// One lane comes to its cut, as its thread would.
void Block::come_to_cut(std::uint32_t lane) {
  const std::uint32_t next = region_frame_.next[lane];
  if (next == kRegionEnded) return thread_ended(lane);
  const RegionCut& cut = grid_->request.regions->cuts[next - 1];
  bool passes = false;
  switch (cut.kind) {
    case CutKind::kBarrier:
      passes = come_to_barrier(lane, cut.id, cut.count);
      break;
    case CutKind::kReduction:
      come_to_reduction(lane, cut.id, cut.count, static_cast<BarrierReduction>(cut.reduction),
                        region_frame_.operand[lane] != 0);
      return;  // Who completes it is ready with the others.
    case CutKind::kWarp:
      passes = come_to_warp(lane, region_frame_.operand[lane], cut.function,
                            reinterpret_cast<const std::uint32_t*>(region_frame_.in[lane]),
                            reinterpret_cast<std::uint32_t*>(region_frame_.out[lane]));
      break;
  }
  if (!passes) return;
  warps_[lane / kWarpLanes].ready |= std::uint32_t{1} << (lane % kWarpLanes);
  warps_ready_ |= std::uint32_t{1} << (lane / kWarpLanes);
}

void Block::run_apart(ThreadContext& thread) {
  const RegionProgram& program = *grid_->request.regions;
  const auto is_ready = [this](std::uint32_t lane) {
    return (warps_[lane / kWarpLanes].ready >> (lane % kWarpLanes) & 1) != 0;
  };
  const std::uint32_t* const next = region_frame_.next;
  for (std::uint32_t lane = 0; lane < thread_count_; ++lane) come_to_cut(lane);
  while (live_threads_ > 0 && !grid_->stopped()) {
    if (warps_ready_ == 0) {
      if (settle()) continue;
      grid_->fail(kGridLaunchTimeout, "deadlock: " + describe(), context_.block_id);
      break;
    }
    // One warp goes on as long as it can, so that its operations find all lanes soon.
    if (warps_[current_warp_].ready == 0) {
      const auto first = static_cast<std::uint32_t>(std::countr_zero(warps_ready_));
      const std::uint32_t after = warps_ready_ & ~((std::uint32_t{2} << current_warp_) - 1);
      current_warp_ = after == 0 ? first : static_cast<std::uint32_t>(std::countr_zero(after));
    }
    const std::uint32_t begin =
        current_warp_ * kWarpLanes +
        static_cast<std::uint32_t>(std::countr_zero(warps_[current_warp_].ready));
    const std::uint32_t region = next[begin];
    std::uint32_t end = begin;
    do {
      Warp& warp = warps_[end / kWarpLanes];
      warp.ready &= ~(std::uint32_t{1} << (end % kWarpLanes));
      if (warp.ready == 0) warps_ready_ &= ~(std::uint32_t{1} << (end / kWarpLanes));
      ++end;
    } while (end < thread_count_ && is_ready(end) && next[end] == region);
    const std::uint32_t result = program.functions[region](&thread, &region_frame_, begin, end);
    if (result != kRegionMixed)
      std::fill(region_frame_.next + begin, region_frame_.next + end, result);
    for (std::uint32_t lane = begin; lane < end; ++lane) come_to_cut(lane);
  }
  if (live_threads_ > 0) outcome_ = Outcome::kStopped;
}

}  // namespace gpurun::emulated
