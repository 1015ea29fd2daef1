// Blocks of kernels with a fast form. Regions run for all lanes, one region after the other, as
// long as the lanes agree. Where they disagree, each lane waits as a thread would.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "emulated/engine/block.h"
#include "emulated/engine/grid.h"

namespace gpurun::emulated {

namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void Block::Free::operator()(std::uint8_t* memory) const { std::free(memory); }

// Runs the whole block. outcome_ says how it ended.
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
  const std::size_t own_words = aligned(lanes * sizeof(LaneWords));
  const std::size_t bytes =
      slots + local + (3 + kExchangeInputs) * numbers + 2 * addresses + own_words;
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
  region_frame_.second = reinterpret_cast<std::uint32_t*>(take(numbers));
  for (std::uint32_t*& word : region_frame_.word) {
    word = reinterpret_cast<std::uint32_t*>(take(numbers));
  }
  region_frame_.in = reinterpret_cast<std::uint64_t*>(take(addresses));
  region_frame_.out = reinterpret_cast<std::uint64_t*>(take(addresses));
  region_frame_.result = results_;
  exchanged_ = reinterpret_cast<LaneWords*>(take(own_words));
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
    if (each_has_said) next = common_next(0, thread_count_);
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

// The region in which all of these lanes continue, or kRegionMixed.
std::uint32_t Block::common_next(std::uint32_t begin, std::uint32_t end) const {
  const std::uint32_t* const next = region_frame_.next;
  const std::uint32_t first = next[begin];
  std::uint32_t differences = 0;
  for (std::uint32_t lane = begin; lane < end; ++lane) differences |= next[lane] ^ first;
  return differences == 0 ? first : kRegionMixed;
}

// All threads of the block have reached this cut. False: not all of them continue, and nothing was
// done.
bool Block::pass_together(const RegionCut& cut) {
  if (cut.kind == CutKind::kWarp || cut.kind == CutKind::kExchange) return exchange_together(cut);
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

// Does an exchange in all warps, if in each warp the lanes' masks agree. False: nothing was done.
bool Block::exchange_together(const RegionCut& cut) {
  for (std::uint32_t w = 0; w < warp_count_; ++w) {
    if (!masks_agree(cut, w, warps_[w].live)) return false;
  }
  exchange(cut, 0, warp_count_, ~std::uint32_t{0});
  return true;
}

// Whether these lanes of a warp, which have reached the cut, form one or several complete groups.
// In each group every lane names itself and all others of the group. Lanes that they name and that
// have not ended are among these lanes, and name the same.
bool Block::masks_agree(const RegionCut& cut, std::uint32_t warp_index, std::uint32_t lanes) const {
  const std::uint32_t live = warps_[warp_index].live;
  if ((cut.known & kKnownMask) != 0) return (cut.mask & live) == lanes;
  const std::uint32_t* const masks = region_frame_.operand + warp_index * kWarpLanes;
  while (lanes != 0) {
    const std::uint32_t mask = masks[std::countr_zero(lanes)];
    const std::uint32_t group = mask & live;
    if ((mask & lanes & (~lanes + 1)) == 0 || (group & ~lanes) != 0) return false;
    std::uint32_t differences = 0;
    for (std::uint32_t left = group; left != 0; left &= left - 1) {
      differences |= masks[std::countr_zero(left)] ^ mask;
    }
    if (differences != 0) return false;
    lanes &= ~group;
  }
  return true;
}

// The input and result words of lanes at an exchange, from this warp on.
WarpWords Block::words_of(const RegionCut& cut, std::uint32_t warp_index) const {
  const std::uint32_t first = warp_index * kWarpLanes;
  WarpWords words;
  for (std::uint32_t i = 0; i < kExchangeInputs; ++i) {
    const bool known = (cut.known & kKnownWord << i) != 0;
    words.in[i] = known ? &cut.words[i] : region_frame_.word[i] + first;
    words.step[i] = known ? 0 : 1;
  }
  words.out[0] = cut.results > 0 ? region_frame_.result + first : nullptr;
  words.out[1] = cut.results > 1 ? region_frame_.second + first : nullptr;
  return words;
}

// Does the operation of the cut for the live lanes among `lanes` of each of these warps. Their
// masks must agree.
void Block::exchange(const RegionCut& cut, std::uint32_t first_warp, std::uint32_t last_warp,
                     std::uint32_t lanes) {
  if (cut.function == nullptr) return;
  const auto for_each_group = [&](std::uint32_t w, const auto& perform) {
    const std::uint32_t live = warps_[w].live;
    std::uint32_t left = live & lanes;
    if ((cut.known & kKnownMask) != 0) return perform(left);
    while (left != 0) {
      const auto lane = static_cast<std::uint32_t>(std::countr_zero(left));
      const std::uint32_t group = region_frame_.operand[w * kWarpLanes + lane] & live;
      perform(group);
      left &= ~group;
    }
  };
  if (cut.kind == CutKind::kExchange) {
    // Neighbouring warps with a group of the same lanes are done at once.
    std::uint32_t begin = first_warp;
    std::uint32_t end = first_warp;
    std::uint32_t alike = 0;
    const auto perform = [&] {
      if (begin != end) cut.words_function(alike, words_of(cut, begin), end - begin);
    };
    for (std::uint32_t w = first_warp; w < last_warp; ++w) {
      for_each_group(w, [&](std::uint32_t group) {
        if (begin == end || end != w || group != alike) {
          perform();
          begin = w;
          alike = group;
        }
        end = w + 1;
      });
    }
    return perform();
  }
  std::uint32_t first = first_warp * kWarpLanes;
  for (std::uint32_t w = first_warp; w < last_warp; ++w, first += kWarpLanes) {
    WarpSlot* const slots = warps_[w].slots;
    for (std::uint32_t left = warps_[w].live & lanes; left != 0; left &= left - 1) {
      const auto i = static_cast<std::uint32_t>(std::countr_zero(left));
      slots[i] = {reinterpret_cast<const std::uint32_t*>(region_frame_.in[first + i]),
                  reinterpret_cast<std::uint32_t*>(region_frame_.out[first + i])};
    }
    for_each_group(w, [&](std::uint32_t group) { cut.function(group, slots); });
  }
}

// Lanes that have run arrive at their cuts: all at the cut before region `next`, or each at its
// own. Lanes of one warp that arrive at the same cut are handled at once if possible, others one by
// one.
void Block::come_to_cuts(std::uint32_t begin, std::uint32_t end, std::uint32_t next) {
  while (begin < end) {
    const std::uint32_t last = std::min(end, (begin / kWarpLanes + 1) * kWarpLanes);
    if (come_as_warp(begin, last, next)) begin = last;
    for (; begin < last; ++begin) come_to_cut(begin);
  }
}

// False: nothing was done.
bool Block::come_as_warp(std::uint32_t begin, std::uint32_t end, std::uint32_t next) {
  if (next == kRegionMixed) next = common_next(begin, end);
  if (next == kRegionMixed) return false;
  const std::uint32_t w = begin / kWarpLanes;
  Warp& warp = warps_[w];
  const std::uint32_t lanes = ~std::uint32_t{0} >> (kWarpLanes - (end - begin))
                                                       << (begin % kWarpLanes);
  const bool whole = lanes == warp.live;
  if (next == kRegionEnded) {
    if (!whole) return false;  // Others of the warp may wait for them.
    warp.live = 0;
    live_threads_ -= end - begin;
    release_without_the_ended();
    return true;
  }
  const RegionCut& cut = grid_->request.regions->cuts[next - 1];
  if (cut.kind == CutKind::kReduction) return false;
  warp.common_next = whole ? next : kRegionMixed;
  if (cut.kind == CutKind::kBarrier) return come_to_barrier_together(cut, w, lanes);
  if (!masks_agree(cut, w, lanes)) return false;
  exchange(cut, w, w + 1, lanes);
  warp.ready |= lanes;
  warps_ready_ |= std::uint32_t{1} << w;
  return true;
}

bool Block::come_to_barrier_together(const RegionCut& cut, std::uint32_t warp_index,
                                     std::uint32_t lanes) {
  const std::uint32_t id = cut.id % kBarriersPerBlock;
  Barrier& barrier = barriers_[id];
  const std::uint32_t expected = cut.count != 0 ? cut.count : live_threads_;
  const std::uint32_t arrived = barrier.arrived + static_cast<std::uint32_t>(std::popcount(lanes));
  if (arrived > expected) return false;  // It is complete before the last of them comes.
  barriers_used_ |= std::uint32_t{1} << id;
  barrier.expected = cut.count;
  barrier.arrived = arrived;
  barrier.waiting[warp_index] |= lanes;
  barrier.warps |= std::uint32_t{1} << warp_index;
  if (arrived == expected) release_barrier(barrier);
  return true;
}

// One lane arrives at its cut, as its thread would.
void Block::come_to_cut(std::uint32_t lane) {
  const std::uint32_t next = region_frame_.next[lane];
  warps_[lane / kWarpLanes].common_next = kRegionMixed;
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
      return;  // The lane that completes it is ready with the others.
    case CutKind::kWarp:
      passes = come_to_warp(lane, region_frame_.operand[lane], cut.function,
                            reinterpret_cast<const std::uint32_t*>(region_frame_.in[lane]),
                            reinterpret_cast<std::uint32_t*>(region_frame_.out[lane]));
      break;
    case CutKind::kExchange:
      passes = come_to_exchange(cut, lane);
      break;
  }
  if (!passes) return;
  warps_[lane / kWarpLanes].ready |= std::uint32_t{1} << (lane % kWarpLanes);
  warps_ready_ |= std::uint32_t{1} << (lane / kWarpLanes);
}

bool Block::come_to_exchange(const RegionCut& cut, std::uint32_t lane) {
  LaneWords& words = exchanged_[lane];
  for (std::uint32_t i = 0; i < kExchangeInputs; ++i) {
    words.in[i] = (cut.known & kKnownWord << i) != 0 ? cut.words[i] : region_frame_.word[i][lane];
  }
  warps_[lane / kWarpLanes].exchanged |= std::uint32_t{1} << (lane % kWarpLanes);
  const std::uint32_t mask = (cut.known & kKnownMask) != 0 ? cut.mask : region_frame_.operand[lane];
  return come_to_warp(lane, mask, cut.function, words.in, words.out);
}

// Takes the lanes from `begin` on that are ready for the same region. Returns the lane after the
// last.
std::uint32_t Block::take_ready(std::uint32_t begin) {
  const std::uint32_t* const next = region_frame_.next;
  const std::uint32_t region = next[begin];
  std::uint32_t end = begin;
  do {
    const std::uint32_t w = end / kWarpLanes;
    Warp& warp = warps_[w];
    const std::uint32_t from = end % kWarpLanes;
    auto count = static_cast<std::uint32_t>(std::countr_one(warp.ready >> from));
    if (warp.common_next != region) {
      std::uint32_t alike = 0;
      while (alike < count && next[end + alike] == region) ++alike;
      count = alike;
    }
    if (count == 0) break;
    const std::uint32_t lanes = ~std::uint32_t{0} >> (kWarpLanes - count) << from;
    if ((warp.exchanged & lanes) != 0) take_results(w, warp.exchanged & lanes);
    warp.ready &= ~lanes;
    if (warp.ready == 0) warps_ready_ &= ~(std::uint32_t{1} << w);
    end += count;
  } while (end % kWarpLanes == 0 && end < thread_count_);
  return end;
}

// Copies the lanes' results of exchanges to where the code of regions reads them.
void Block::take_results(std::uint32_t warp_index, std::uint32_t lanes) {
  warps_[warp_index].exchanged &= ~lanes;
  for (; lanes != 0; lanes &= lanes - 1) {
    const std::uint32_t lane =
        warp_index * kWarpLanes + static_cast<std::uint32_t>(std::countr_zero(lanes));
    region_frame_.result[lane] = exchanged_[lane].out[0];
    region_frame_.second[lane] = exchanged_[lane].out[1];
  }
}

void Block::run_apart(ThreadContext& thread) {
  const RegionProgram& program = *grid_->request.regions;
  come_to_cuts(0, thread_count_, kRegionMixed);
  while (live_threads_ > 0 && !grid_->stopped()) {
    if (warps_ready_ == 0) {
      if (settle()) continue;
      grid_->fail(kGridLaunchTimeout, "deadlock: " + describe(), context_.block_id);
      break;
    }
    // One warp continues as long as it can, so that its operations find all lanes soon.
    if (warps_[current_warp_].ready == 0) {
      const auto first = static_cast<std::uint32_t>(std::countr_zero(warps_ready_));
      const std::uint32_t after = warps_ready_ & ~((std::uint32_t{2} << current_warp_) - 1);
      current_warp_ = after == 0 ? first : static_cast<std::uint32_t>(std::countr_zero(after));
    }
    const std::uint32_t begin =
        current_warp_ * kWarpLanes +
        static_cast<std::uint32_t>(std::countr_zero(warps_[current_warp_].ready));
    const std::uint32_t region = region_frame_.next[begin];
    const std::uint32_t end = take_ready(begin);
    const std::uint32_t result = program.functions[region](&thread, &region_frame_, begin, end);
    if (result != kRegionMixed)
      std::fill(region_frame_.next + begin, region_frame_.next + end, result);
    come_to_cuts(begin, end, result);
  }
  if (live_threads_ > 0) outcome_ = Outcome::kStopped;
}

}  // namespace gpurun::emulated
