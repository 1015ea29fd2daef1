// Converged lanes of a warp: which they are, and when they continue together.
//
// A lane that arrives at a position waits until the warp has nothing else to run. Then the group at
// the position that comes first in the code continues, because its lanes may still reach the groups
// behind it. A GPU does the same where it lets lanes wait at the end of a branch or loop.
#include <bit>

#include "emulated/engine/block.h"
#include "emulated/engine/grid.h"

namespace gpurun::emulated {

namespace {

// Steps that only load, and steps of any kind, before other warps and blocks get a turn.
constexpr std::uint32_t kLoadStepsMax = 32;
constexpr std::uint32_t kStepsMax = 4096;
// Turns of polling lanes before the groups of their warp continue without them.
constexpr std::uint32_t kRecallsMax = 2;
// A group that is behind others waits for this many of their steps. A step that only loads counts
// for many, because its loop may wait for a store of a waiting lane.
constexpr std::uint32_t kPassedOverMax = 1 << 16;
constexpr std::uint32_t kPassedOverByLoad = 1 << 8;

int compared(std::uint64_t a, std::uint64_t b) { return a < b ? -1 : a > b ? 1 : 0; }

int compared_in_function(const CodePosition& a, const CodePosition& b) {
  if (a.function != b.function) {
    return compared(reinterpret_cast<std::uint64_t>(a.function),
                    reinterpret_cast<std::uint64_t>(b.function));
  }
  for (std::uint64_t i = 0; i < a.word_count && i < b.word_count; ++i) {
    const int order = compared(a.words()[i], b.words()[i]);
    if (order != 0) return order;
  }
  return compared(a.word_count, b.word_count);
}

std::uint32_t depth_of(const CodePosition* position) {
  std::uint32_t depth = 0;
  for (; position != nullptr; position = position->caller) ++depth;
  return depth;
}

// Below 0, 0 or above 0 when `a` comes before `b`, equals it, or comes after it.
int compared(const CodePosition* a, const CodePosition* b) {
  std::uint32_t a_depth = depth_of(a);
  std::uint32_t b_depth = depth_of(b);
  int order = compared(a_depth, b_depth);
  for (; a_depth > b_depth; --a_depth) a = a->caller;
  for (; b_depth > a_depth; --b_depth) b = b->caller;
  // The outermost difference decides, and it is found last.
  for (; a != nullptr; a = a->caller, b = b->caller) {
    const int here = compared_in_function(*a, *b);
    if (here != 0) order = here;
  }
  return order;
}

}  // namespace

std::uint32_t Block::active_mask(Fiber& self, const CodePosition& position) {
  come_to_position(self, position, false);
  return results_[self.thread.thread_linear];
}

void Block::step_together(Fiber& self, const CodePosition& position, bool is_load) {
  come_to_position(self, position, is_load);
}

void Block::come_to_position(Fiber& self, const CodePosition& position, bool is_load) {
  const std::uint32_t thread = self.thread.thread_linear;
  Warp& warp = warps_[thread / kWarpLanes];
  std::uint32_t index = 0;
  while (index < warp.converged_count && compared(warp.converged[index].position, &position) != 0) {
    ++index;
  }
  if (index == warp.converged_count) {
    warp.converged[warp.converged_count++] = {&position, 0, warp.arrivals++, is_load};
  }
  warp.converged[index].arrived |= std::uint32_t{1} << (thread % kWarpLanes);
  suspend(self);
}

// False: there is no group, or every group waits for lanes that can still run.
bool Block::settle_converged_groups() {
  for (std::uint32_t i = 0; i < warp_count_; ++i) {
    const std::uint32_t w = (current_warp_ + i) % warp_count_;
    Warp& warp = warps_[w];
    const bool rests = (warps_resting_ >> w & 1) != 0;
    if (warp.converged_count == 0 || warp.ready != 0 || rests || unstarted_in(w)) continue;
    if (takes_rest(w)) continue;
    if (recall_polling(w)) return true;
    const std::uint32_t chosen = next_converged_group(warp);
    const ConvergedGroup group = warp.converged[chosen];
    warp.converged[chosen] = warp.converged[--warp.converged_count];
    for (std::uint32_t lanes = group.arrived; lanes != 0; lanes &= lanes - 1) {
      const auto lane = static_cast<std::uint32_t>(std::countr_zero(lanes));
      results_[w * kWarpLanes + lane] = group.arrived;
    }
    ++warp.steps;
    warp.load_steps = group.is_load ? warp.load_steps + 1 : 0;
    warp.recalls = 0;
    warp.ready |= group.arrived;
    warps_ready_ |= std::uint32_t{1} << w;
    return true;
  }
  return false;
}

// Whether the warp's groups wait now until everything else had a turn. All of them do, because a
// group that continued alone could leave lanes behind that would have joined it.
bool Block::takes_rest(std::uint32_t warp_index) {
  Warp& warp = warps_[warp_index];
  if (warp.load_steps < kLoadStepsMax && warp.steps < kStepsMax) return false;
  warp.steps = warp.load_steps = 0;
  warps_resting_ |= std::uint32_t{1} << warp_index;
  return true;
}

// Lanes that yielded (Block::yield) may be on their way to a group, so they get a turn first.
bool Block::recall_polling(std::uint32_t warp_index) {
  Warp& warp = warps_[warp_index];
  if (warp.polling == 0 || warp.recalls >= kRecallsMax) return false;
  ++warp.recalls;
  polling_threads_ -= static_cast<std::uint32_t>(std::popcount(warp.polling));
  warp.ready |= warp.polling;
  warp.polling = 0;
  warps_ready_ |= std::uint32_t{1} << warp_index;
  return true;
}

// The group that comes first in the code, or once in a while the one that has waited longest.
std::uint32_t Block::next_converged_group(Warp& warp) const {
  std::uint32_t first = 0;
  std::uint32_t oldest = 0;
  for (std::uint32_t i = 1; i < warp.converged_count; ++i) {
    const ConvergedGroup& group = warp.converged[i];
    if (compared(group.position, warp.converged[first].position) < 0) first = i;
    // A difference, because arrivals may wrap.
    const std::uint32_t later = group.arrival - warp.converged[oldest].arrival;
    if (static_cast<std::int32_t>(later) < 0) oldest = i;
  }
  if (warp.converged_count == 1) {
    warp.passed_over = 0;
    return first;
  }
  warp.passed_over += warp.converged[first].is_load ? kPassedOverByLoad : 1;
  if (warp.passed_over < kPassedOverMax) return first;
  warp.passed_over = 0;
  return oldest;
}

}  // namespace gpurun::emulated
