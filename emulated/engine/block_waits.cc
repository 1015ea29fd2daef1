// Waits of a block's threads: for barriers, for the lanes of their warp, for their cluster.
#include <bit>

#include "emulated/engine/block.h"
#include "emulated/engine/grid.h"

namespace gpurun::emulated {

namespace {

struct Place {
  explicit Place(std::uint32_t thread)
      : warp(thread / kWarpLanes), bit(std::uint32_t{1} << (thread % kWarpLanes)) {}
  explicit Place(const Fiber& fiber) : Place(fiber.thread.thread_linear) {}
  std::uint32_t warp;
  std::uint32_t bit;
};

}  // namespace

// ---- Barriers

// Counts one arrival. True when it completes the barrier.
bool Block::arrive(std::uint32_t id, std::uint32_t count, Barrier** found) {
  id %= kBarriersPerBlock;
  barriers_used_ |= std::uint32_t{1} << id;
  Barrier& barrier = barriers_[id];
  *found = &barrier;
  barrier.expected = count;
  ++barrier.arrived;
  return barrier.arrived >= (count != 0 ? count : live_threads_);
}

void Block::barrier_sync(Fiber& self, std::uint32_t id, std::uint32_t count) {
  if (!come_to_barrier(self.thread.thread_linear, id, count)) suspend(self);
}

// False: the thread has to wait.
bool Block::come_to_barrier(std::uint32_t thread, std::uint32_t id, std::uint32_t count) {
  Barrier* barrier = nullptr;
  if (arrive(id, count, &barrier)) {
    release_barrier(*barrier);
    return true;
  }
  const Place place(thread);
  barrier->waiting[place.warp] |= place.bit;
  barrier->warps |= std::uint32_t{1} << place.warp;
  return false;
}

void Block::barrier_arrive(std::uint32_t id, std::uint32_t count) {
  Barrier* barrier = nullptr;
  if (arrive(id, count, &barrier)) release_barrier(*barrier);
}

std::uint32_t Block::barrier_reduce(Fiber& self, std::uint32_t id, std::uint32_t count,
                                    BarrierReduction reduction, bool value) {
  const std::uint32_t thread = self.thread.thread_linear;
  if (!come_to_reduction(thread, id, count, reduction, value)) {
    suspend(self);
    return results_[thread];
  }
  // The caller has its value like all others, and continues at once.
  const Place place(self);
  Warp& warp = warps_[place.warp];
  warp.ready &= ~place.bit;
  if (warp.ready == 0) warps_ready_ &= ~(std::uint32_t{1} << place.warp);
  return results_[thread];
}

// True: the reduction is complete, and the thread is among those that are ready.
bool Block::come_to_reduction(std::uint32_t thread, std::uint32_t id, std::uint32_t count,
                              BarrierReduction reduction, bool value) {
  Barrier* barrier = nullptr;
  const bool complete = arrive(id, count, &barrier);
  const Place place(thread);
  barrier->reduction = reduction;
  barrier->true_count += value ? 1 : 0;
  ++barrier->reduced;
  barrier->waiting[place.warp] |= place.bit;
  barrier->warps |= std::uint32_t{1} << place.warp;
  if (complete) release_barrier(*barrier);
  return complete;
}

void Block::release_barrier(Barrier& barrier) {
  std::uint32_t value = barrier.true_count;
  if (barrier.reduction == BarrierReduction::kAnd) value = barrier.true_count == barrier.reduced;
  if (barrier.reduction == BarrierReduction::kOr) value = barrier.true_count != 0;
  for (std::uint32_t warps = barrier.warps; warps != 0; warps &= warps - 1) {
    const auto w = static_cast<std::uint32_t>(std::countr_zero(warps));
    if (barrier.reduced != 0) {
      for (std::uint32_t lanes = barrier.waiting[w]; lanes != 0; lanes &= lanes - 1) {
        const auto lane = static_cast<std::uint32_t>(std::countr_zero(lanes));
        results_[w * kWarpLanes + lane] = value;
      }
    }
    warps_[w].ready |= barrier.waiting[w];
    barrier.waiting[w] = 0;
  }
  warps_ready_ |= barrier.warps;
  barrier.arrived = barrier.expected = barrier.warps = 0;
  barrier.true_count = barrier.reduced = 0;
  barrier.reduction = BarrierReduction::kPopulation;
  poll_rounds_ = 0;
}

// A barrier with a count counts whole warps (PTX ISA, bar: "the barrier count is a multiple of the
// warp size"). In a warp that takes part, lanes that never existed or have ended count as arrived.
bool Block::settle_partial_barriers() {
  bool any = false;
  for (std::uint32_t used = barriers_used_; used != 0; used &= used - 1) {
    Barrier& barrier = barriers_[std::countr_zero(used)];
    if (barrier.arrived == 0 || barrier.expected == 0) continue;
    std::uint32_t present = barrier.arrived;
    std::uint32_t waiting = 0;
    for (std::uint32_t warps = barrier.warps; warps != 0; warps &= warps - 1) {
      const auto w = static_cast<std::uint32_t>(std::countr_zero(warps));
      present += static_cast<std::uint32_t>(std::popcount(~warps_[w].live));
      waiting += static_cast<std::uint32_t>(std::popcount(barrier.waiting[w]));
    }
    if (waiting == 0 || (present < barrier.expected && waiting < live_threads_)) continue;
    release_barrier(barrier);
    any = true;
  }
  return any;
}

// ---- Warp operations

void Block::warp(Fiber& self, std::uint32_t mask, WarpFunction function, const std::uint32_t* in,
                 std::uint32_t* out) {
  if (!come_to_warp(self.thread.thread_linear, mask, function, in, out)) suspend(self);
}

// False: the thread has to wait for other lanes.
bool Block::come_to_warp(std::uint32_t thread, std::uint32_t mask, WarpFunction function,
                         const std::uint32_t* in, std::uint32_t* out) {
  const Place place(thread);
  Warp& warp = warps_[place.warp];
  mask |= place.bit;
  warp.slots[thread % kWarpLanes] = {in, out};
  std::uint32_t index = 0;
  while (index < warp.group_count &&
         (warp.groups[index].mask != mask || warp.groups[index].function != function)) {
    ++index;
  }
  const std::uint32_t arrived =
      (index < warp.group_count ? warp.groups[index].arrived : 0) | place.bit;
  if ((mask & warp.live & ~arrived) == 0) {
    if (index == warp.group_count) {
      if (function != nullptr) function(arrived, warp.slots);
      return true;
    }
    warp.groups[index].arrived = arrived & ~place.bit;
    complete_group(warp, index, arrived);
    return true;
  }
  if (index == warp.group_count) warp.groups[warp.group_count++] = {function, mask, 0};
  warp.groups[index].arrived = arrived;
  return false;
}

// Runs the operation for `present`, and lets the waiting lanes continue.
void Block::complete_group(Warp& warp, std::uint32_t group_index, std::uint32_t present) {
  const WarpGroup group = warp.groups[group_index];
  warp.groups[group_index] = warp.groups[--warp.group_count];
  if (group.function != nullptr) group.function(present, warp.slots);
  warp.ready |= group.arrived;
  if (group.arrived != 0) warps_ready_ |= std::uint32_t{1} << (&warp - warps_);
  poll_rounds_ = 0;
}

// Lanes of one mask that arrived at different operations wait for each other, and then do each
// their own. This is wrong in CUDA, but it works on NVIDIA devices, so programs do it.
bool Block::settle_mixed_groups() {
  for (std::uint32_t w = 0; w < warp_count_; ++w) {
    Warp& warp = warps_[w];
    for (std::uint32_t g = 0; g < warp.group_count; ++g) {
      const std::uint32_t mask = warp.groups[g].mask;
      std::uint32_t arrived = 0;
      for (std::uint32_t h = 0; h < warp.group_count; ++h) {
        if (warp.groups[h].mask == mask) arrived |= warp.groups[h].arrived;
      }
      if ((mask & warp.live & ~arrived) != 0) continue;
      for (std::uint32_t h = warp.group_count; h-- > 0;) {
        if (warp.groups[h].mask == mask) complete_group(warp, h, warp.groups[h].arrived);
      }
      return true;
    }
  }
  return false;
}

// ---- Clusters

void Block::cluster_arrive(Fiber& self) {
  // A grid without clusters has clusters of one block.
  if (cluster_ == nullptr) cluster_ = std::make_shared<Cluster>(live_threads_);
  self.cluster_phase = cluster_->arrive();
  self.cluster_arrived = true;
}

void Block::cluster_wait(Fiber& self) {
  if (!self.cluster_arrived) return;  // Undefined in PTX: there is nothing to wait for.
  self.cluster_arrived = false;
  if (cluster_->over(self.cluster_phase)) return;
  const Place place(self);
  warps_[place.warp].at_cluster |= place.bit;
  ++cluster_threads_;
  suspend(self);
}

bool Block::settle_cluster() {
  if (cluster_threads_ == 0) return false;
  bool any = false;
  for (std::uint32_t w = 0; w < warp_count_; ++w) {
    Warp& warp = warps_[w];
    for (std::uint32_t lanes = warp.at_cluster; lanes != 0; lanes &= lanes - 1) {
      const auto lane = static_cast<std::uint32_t>(std::countr_zero(lanes));
      if (!cluster_->over(fiber_of_[w * kWarpLanes + lane]->cluster_phase)) continue;
      const std::uint32_t bit = std::uint32_t{1} << lane;
      warp.at_cluster &= ~bit;
      warp.ready |= bit;
      warps_ready_ |= std::uint32_t{1} << w;
      --cluster_threads_;
      any = true;
    }
  }
  return any;
}

// ---- What changes when nothing can run, or a thread has ended

bool Block::settle() {
  return settle_converged_groups() || settle_cluster() || settle_partial_barriers() ||
         settle_mixed_groups();
}

void Block::ended(Fiber& self) {
  thread_ended(self.thread.thread_linear);
  if (cluster_ != nullptr) cluster_->leave(self.cluster_arrived, self.cluster_phase);
  self.cluster_arrived = false;
}

void Block::thread_ended(std::uint32_t thread) {
  const Place place(thread);
  Warp& warp = warps_[place.warp];
  warp.live &= ~place.bit;
  --live_threads_;
  poll_rounds_ = 0;
  for (std::uint32_t g = warp.group_count; g-- > 0;) {
    const WarpGroup& group = warp.groups[g];
    if ((group.mask & warp.live & ~group.arrived) == 0) complete_group(warp, g, group.arrived);
  }
  release_without_the_ended();
}

void Block::release_without_the_ended() {
  for (std::uint32_t used = barriers_used_; used != 0; used &= used - 1) {
    Barrier& barrier = barriers_[std::countr_zero(used)];
    if (barrier.arrived != 0 && barrier.expected == 0 && barrier.arrived >= live_threads_) {
      release_barrier(barrier);
    }
  }
}

}  // namespace gpurun::emulated
