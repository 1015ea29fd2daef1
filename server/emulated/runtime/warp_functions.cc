// Warp operations, from the PTX ISA's pseudo code (sections 9.7.9.6 shfl.sync, 9.7.13 vote, match,
// redux, elect).
#include "server/emulated/runtime/warp_functions.h"

#include <bit>

namespace gpurun::emulated {
namespace {

template <typename Body>
void for_each_lane(std::uint32_t present, Body body) {
  for (std::uint32_t lanes = present; lanes != 0; lanes &= lanes - 1) {
    body(static_cast<std::uint32_t>(std::countr_zero(lanes)));
  }
}

enum class Shuffle { kUp, kDown, kButterfly, kIndex };

template <Shuffle kind>
void shuffle(std::uint32_t present, const WarpSlot* slots) {
  // All inputs are read first: a lane's output may be the memory of its input.
  std::uint32_t values[kWarpLanes] = {};
  for_each_lane(present, [&](std::uint32_t lane) { values[lane] = slots[lane].in[0]; });
  for_each_lane(present, [&](std::uint32_t lane) {
    const std::uint32_t b = slots[lane].in[1] & 31;
    const std::uint32_t c = slots[lane].in[2] & 31;
    const std::uint32_t segment = slots[lane].in[2] >> 8 & 31;
    const auto max_lane = static_cast<int>((lane & segment) | (c & ~segment));
    int from = 0;
    bool valid = false;
    if constexpr (kind == Shuffle::kUp) {
      from = static_cast<int>(lane) - static_cast<int>(b);
      valid = from >= max_lane;
    } else if constexpr (kind == Shuffle::kDown) {
      from = static_cast<int>(lane + b);
      valid = from <= max_lane;
    } else if constexpr (kind == Shuffle::kButterfly) {
      from = static_cast<int>(lane ^ b);
      valid = from <= max_lane;
    } else {
      from = static_cast<int>((lane & segment) | (b & ~segment));
      valid = from <= max_lane;
    }
    // A lane that is not here has no value; PTX leaves the result open, ours is one's own.
    const bool there = valid && (present >> from & 1) != 0;
    slots[lane].out[0] = values[there ? static_cast<std::uint32_t>(from) : lane];
    slots[lane].out[1] = valid ? 1 : 0;
  });
}

std::uint32_t ballot(std::uint32_t present, const WarpSlot* slots) {
  std::uint32_t mask = 0;
  for_each_lane(present, [&](std::uint32_t lane) {
    if (slots[lane].in[0] != 0) mask |= std::uint32_t{1} << lane;
  });
  return mask;
}

void give_all(std::uint32_t present, const WarpSlot* slots, std::uint32_t value) {
  for_each_lane(present, [&](std::uint32_t lane) { slots[lane].out[0] = value; });
}

void vote_ballot(std::uint32_t present, const WarpSlot* slots) {
  give_all(present, slots, ballot(present, slots));
}
void vote_all(std::uint32_t present, const WarpSlot* slots) {
  give_all(present, slots, ballot(present, slots) == present ? 1 : 0);
}
void vote_any(std::uint32_t present, const WarpSlot* slots) {
  give_all(present, slots, ballot(present, slots) != 0 ? 1 : 0);
}
void vote_uniform(std::uint32_t present, const WarpSlot* slots) {
  const std::uint32_t mask = ballot(present, slots);
  give_all(present, slots, mask == 0 || mask == present ? 1 : 0);
}

void gather(std::uint32_t present, const WarpSlot* slots, std::uint64_t* values) {
  for_each_lane(present, [&](std::uint32_t lane) {
    values[lane] = slots[lane].in[0] | std::uint64_t{slots[lane].in[1]} << 32;
  });
}

std::uint32_t equal_lanes(std::uint32_t present, const std::uint64_t* values, std::uint64_t value) {
  std::uint32_t mask = 0;
  for_each_lane(present, [&](std::uint32_t lane) {
    if (values[lane] == value) mask |= std::uint32_t{1} << lane;
  });
  return mask;
}

void match_any(std::uint32_t present, const WarpSlot* slots) {
  std::uint64_t values[kWarpLanes] = {};
  gather(present, slots, values);
  for_each_lane(present, [&](std::uint32_t lane) {
    slots[lane].out[0] = equal_lanes(present, values, values[lane]);
    slots[lane].out[1] = 1;
  });
}

void match_all(std::uint32_t present, const WarpSlot* slots) {
  std::uint64_t values[kWarpLanes] = {};
  gather(present, slots, values);
  const bool all = equal_lanes(present, values, values[std::countr_zero(present)]) == present;
  for_each_lane(present, [&](std::uint32_t lane) {
    slots[lane].out[0] = all ? present : 0;
    slots[lane].out[1] = all ? 1 : 0;
  });
}

template <typename Combine>
void reduce(std::uint32_t present, const WarpSlot* slots, Combine combine) {
  std::uint32_t total = slots[std::countr_zero(present)].in[0];
  for_each_lane(present & (present - 1),
                [&](std::uint32_t lane) { total = combine(total, slots[lane].in[0]); });
  give_all(present, slots, total);
}

using U32 = std::uint32_t;
template <typename T>
T as(U32 value) {
  return static_cast<T>(value);
}

void redux_add(U32 present, const WarpSlot* slots) {
  reduce(present, slots, [](U32 a, U32 b) { return a + b; });
}
void redux_and(U32 present, const WarpSlot* slots) {
  reduce(present, slots, [](U32 a, U32 b) { return a & b; });
}
void redux_or(U32 present, const WarpSlot* slots) {
  reduce(present, slots, [](U32 a, U32 b) { return a | b; });
}
void redux_xor(U32 present, const WarpSlot* slots) {
  reduce(present, slots, [](U32 a, U32 b) { return a ^ b; });
}
template <typename T>
void redux_min(U32 present, const WarpSlot* slots) {
  reduce(present, slots, [](U32 a, U32 b) { return as<T>(a) < as<T>(b) ? a : b; });
}
template <typename T>
void redux_max(U32 present, const WarpSlot* slots) {
  reduce(present, slots, [](U32 a, U32 b) { return as<T>(a) < as<T>(b) ? b : a; });
}

void elect(std::uint32_t present, const WarpSlot* slots) {
  const auto leader = static_cast<std::uint32_t>(std::countr_zero(present));
  for_each_lane(present, [&](std::uint32_t lane) {
    slots[lane].out[0] = leader;
    slots[lane].out[1] = lane == leader ? 1 : 0;
  });
}

constexpr WarpFunctionName kFunctions[] = {
    {"gpurun_warp_shfl_up", shuffle<Shuffle::kUp>},
    {"gpurun_warp_shfl_down", shuffle<Shuffle::kDown>},
    {"gpurun_warp_shfl_bfly", shuffle<Shuffle::kButterfly>},
    {"gpurun_warp_shfl_idx", shuffle<Shuffle::kIndex>},
    {"gpurun_warp_vote_all", vote_all},
    {"gpurun_warp_vote_any", vote_any},
    {"gpurun_warp_vote_uni", vote_uniform},
    {"gpurun_warp_vote_ballot", vote_ballot},
    {"gpurun_warp_match_any", match_any},
    {"gpurun_warp_match_all", match_all},
    {"gpurun_warp_redux_add", redux_add},
    {"gpurun_warp_redux_and", redux_and},
    {"gpurun_warp_redux_or", redux_or},
    {"gpurun_warp_redux_xor", redux_xor},
    {"gpurun_warp_redux_min_s32", redux_min<std::int32_t>},
    {"gpurun_warp_redux_max_s32", redux_max<std::int32_t>},
    {"gpurun_warp_redux_min_u32", redux_min<std::uint32_t>},
    {"gpurun_warp_redux_max_u32", redux_max<std::uint32_t>},
    {"gpurun_warp_elect", elect},
};

}  // namespace

std::span<const WarpFunctionName> warp_functions() { return kFunctions; }

}  // namespace gpurun::emulated
