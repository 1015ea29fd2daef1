// Warp operations, from the PTX ISA's pseudo code (sections 9.7.9.6 shfl.sync, 9.7.13 vote, match,
// redux, elect). Each exists for words in the lanes' own arrays and for words side by side.
#include "emulated/runtime/warp_functions.h"

#include <bit>
#include <concepts>
#include <cstring>

namespace gpurun::emulated {
namespace {

using U32 = std::uint32_t;
constexpr U32 kAllLanes = ~U32{0};

// Where the words of the lanes are.
class OwnWords {
 public:
  explicit OwnWords(const WarpSlot* slots) : slots_(slots) {}
  U32 in(U32 lane, U32 i) const { return slots_[lane].in[i]; }
  void give(U32 lane, U32 value) const { slots_[lane].out[0] = value; }
  void give_second(U32 lane, U32 value) const { slots_[lane].out[1] = value; }

 private:
  const WarpSlot* slots_;
};
class RowWords {
 public:
  explicit RowWords(const WarpWords& words) : words_(words) {}
  U32 in(U32 lane, U32 i) const {
    return words_.in[i][static_cast<std::size_t>(lane) * words_.step[i]];
  }
  void give(U32 lane, U32 value) const {
    if (words_.out[0] != nullptr) words_.out[0][lane] = value;
  }
  void give_second(U32 lane, U32 value) const {
    if (words_.out[1] != nullptr) words_.out[1][lane] = value;
  }

 private:
  const WarpWords& words_;
};

template <typename Body>
void for_each_lane(U32 present, Body body) {
  if (present == kAllLanes) {
    for (U32 lane = 0; lane < kWarpLanes; ++lane) body(lane);
    return;
  }
  for (U32 lanes = present; lanes != 0; lanes &= lanes - 1) {
    body(static_cast<U32>(std::countr_zero(lanes)));
  }
}

enum class Kind { kUp, kDown, kButterfly, kIndex };

// The lane that `lane` reads, before it is known to be inside of the segment.
template <Kind kind>
int source(U32 lane, U32 b, U32 segment) {
  if constexpr (kind == Kind::kUp) return static_cast<int>(lane) - static_cast<int>(b);
  if constexpr (kind == Kind::kDown) return static_cast<int>(lane + b);
  if constexpr (kind == Kind::kButterfly) return static_cast<int>(lane ^ b);
  return static_cast<int>((lane & segment) | (b & ~segment));
}

template <Kind kind>
bool is_inside(int from, U32 lane, U32 clamp, U32 segment) {
  const auto limit = static_cast<int>((lane & segment) | (clamp & ~segment));
  return kind == Kind::kUp ? from >= limit : from <= limit;
}

template <Kind kind>
struct Shuffle {
  template <class Words>
  static void run(U32 present, const Words& words) {
    // All inputs are read first: a lane's output may be the memory of its input.
    U32 values[kWarpLanes] = {};
    for_each_lane(present, [&](U32 lane) { values[lane] = words.in(lane, 0); });
    for_each_lane(present, [&](U32 lane) {
      const U32 b = words.in(lane, 1) & 31;
      const U32 c = words.in(lane, 2);
      const U32 segment = c >> 8 & 31;
      const int from = source<kind>(lane, b, segment);
      const bool valid = is_inside<kind>(from, lane, c & 31, segment);
      // An absent lane has no value. PTX leaves the result open. Here it is the lane's own value.
      const bool there = valid && (present >> from & 1) != 0;
      words.give(lane, values[there ? static_cast<U32>(from) : lane]);
      words.give_second(lane, valid ? 1 : 0);
    });
  }

  // For whole warps that all move their lanes in the same way. False: they do not, and nothing was
  // done.
  static bool run_alike(const WarpWords& words, U32 warps) {
    const bool alike = words.step[0] != 0 && words.step[1] == 0 && words.step[2] == 0;
    if (!alike || words.out[0] == nullptr) return false;
    const U32 b = *words.in[1] & 31;
    const U32 clamp = *words.in[2] & 31;
    const U32 segment = *words.in[2] >> 8 & 31;
    const U32 lanes = warps * kWarpLanes;
    if (!moves_whole_warps(words.in[0], words.out[0], lanes, b, clamp, segment)) {
      for (U32 at = 0; at < lanes; ++at) {
        const U32 lane = at % kWarpLanes;
        const int from = source<kind>(lane, b, segment);
        const bool valid = is_inside<kind>(from, lane, clamp, segment);
        words.out[0][at] = words.in[0][at - lane + (valid ? static_cast<U32>(from) : lane)];
      }
    }
    if (words.out[1] == nullptr) return true;
    for (U32 at = 0; at < lanes; ++at) {
      const U32 lane = at % kWarpLanes;
      const int from = source<kind>(lane, b, segment);
      words.out[1][at] = is_inside<kind>(from, lane, clamp, segment) ? 1 : 0;
    }
    return true;
  }

 private:
  // The steps of sums and scans over whole warps, which are nearly all shuffles of programs.
  static bool moves_whole_warps(const U32* values, U32* out, U32 lanes, U32 b, U32 clamp,
                                U32 segment) {
    if (kind == Kind::kIndex || segment != 0 || clamp != (kind == Kind::kUp ? 0 : 31)) return false;
    switch (b) {
      case 1:
        return move_by<1>(values, out, lanes);
      case 2:
        return move_by<2>(values, out, lanes);
      case 4:
        return move_by<4>(values, out, lanes);
      case 8:
        return move_by<8>(values, out, lanes);
      case 16:
        return move_by<16>(values, out, lanes);
      default:
        return false;
    }
  }

  template <U32 b>
  static bool move_by(const U32* __restrict values, U32* __restrict out, U32 lanes) {
    for (U32 first = 0; first < lanes;
         first += kWarpLanes, values += kWarpLanes, out += kWarpLanes) {
      if constexpr (kind == Kind::kButterfly) {
        for (U32 lane = 0; lane < kWarpLanes; ++lane) out[lane] = values[lane ^ b];
      } else {
        constexpr U32 kMoved = kWarpLanes - b;
        constexpr bool kUp = kind == Kind::kUp;
        std::memcpy(out + (kUp ? b : 0), values + (kUp ? 0 : b), kMoved * sizeof(U32));
        std::memcpy(out + (kUp ? 0 : kMoved), values + (kUp ? 0 : kMoved), b * sizeof(U32));
      }
    }
    return true;
  }
};

// Operations that are faster for several warps at once than one by one.
template <class Operation>
concept RunsAlike = requires(const WarpWords& words, U32 warps) {
  { Operation::run_alike(words, warps) } -> std::same_as<bool>;
};

template <class Words>
U32 ballot(U32 present, const Words& words) {
  U32 mask = 0;
  for_each_lane(present, [&](U32 lane) {
    if (words.in(lane, 0) != 0) mask |= U32{1} << lane;
  });
  return mask;
}

template <class Words>
void give_all(U32 present, const Words& words, U32 value) {
  for_each_lane(present, [&](U32 lane) { words.give(lane, value); });
}

struct VoteBallot {
  template <class Words>
  static void run(U32 present, const Words& words) {
    give_all(present, words, ballot(present, words));
  }
};
struct VoteAll {
  template <class Words>
  static void run(U32 present, const Words& words) {
    give_all(present, words, ballot(present, words) == present ? 1 : 0);
  }
};
struct VoteAny {
  template <class Words>
  static void run(U32 present, const Words& words) {
    give_all(present, words, ballot(present, words) != 0 ? 1 : 0);
  }
};
struct VoteUniform {
  template <class Words>
  static void run(U32 present, const Words& words) {
    const U32 mask = ballot(present, words);
    give_all(present, words, mask == 0 || mask == present ? 1 : 0);
  }
};

template <class Words>
void gather(U32 present, const Words& words, std::uint64_t* values) {
  for_each_lane(present, [&](U32 lane) {
    values[lane] = words.in(lane, 0) | std::uint64_t{words.in(lane, 1)} << 32;
  });
}

U32 equal_lanes(U32 present, const std::uint64_t* values, std::uint64_t value) {
  U32 mask = 0;
  for_each_lane(present, [&](U32 lane) {
    if (values[lane] == value) mask |= U32{1} << lane;
  });
  return mask;
}

struct MatchAny {
  template <class Words>
  static void run(U32 present, const Words& words) {
    std::uint64_t values[kWarpLanes] = {};
    gather(present, words, values);
    for_each_lane(present, [&](U32 lane) {
      words.give(lane, equal_lanes(present, values, values[lane]));
      words.give_second(lane, 1);
    });
  }
};
struct MatchAll {
  template <class Words>
  static void run(U32 present, const Words& words) {
    std::uint64_t values[kWarpLanes] = {};
    gather(present, words, values);
    const bool all = equal_lanes(present, values, values[std::countr_zero(present)]) == present;
    for_each_lane(present, [&](U32 lane) {
      words.give(lane, all ? present : 0);
      words.give_second(lane, all ? 1 : 0);
    });
  }
};

struct Add {
  U32 operator()(U32 a, U32 b) const { return a + b; }
};
struct And {
  U32 operator()(U32 a, U32 b) const { return a & b; }
};
struct Or {
  U32 operator()(U32 a, U32 b) const { return a | b; }
};
struct Xor {
  U32 operator()(U32 a, U32 b) const { return a ^ b; }
};
template <typename T>
struct Min {
  U32 operator()(U32 a, U32 b) const { return static_cast<T>(a) < static_cast<T>(b) ? a : b; }
};
template <typename T>
struct Max {
  U32 operator()(U32 a, U32 b) const { return static_cast<T>(a) < static_cast<T>(b) ? b : a; }
};

template <class Combine>
struct Redux {
  template <class Words>
  static void run(U32 present, const Words& words) {
    U32 total = words.in(static_cast<U32>(std::countr_zero(present)), 0);
    for_each_lane(present & (present - 1),
                  [&](U32 lane) { total = Combine()(total, words.in(lane, 0)); });
    give_all(present, words, total);
  }
};

struct Elect {
  template <class Words>
  static void run(U32 present, const Words& words) {
    const auto leader = static_cast<U32>(std::countr_zero(present));
    for_each_lane(present, [&](U32 lane) {
      words.give(lane, leader);
      words.give_second(lane, lane == leader ? 1 : 0);
    });
  }
};

template <class Operation>
void on_slots(U32 present, const WarpSlot* slots) {
  Operation::run(present, OwnWords(slots));
}
template <class Operation>
void on_words(U32 present, const WarpWords& words, U32 warps) {
  if constexpr (RunsAlike<Operation>) {
    if (present == kAllLanes && Operation::run_alike(words, warps)) return;
  }
  WarpWords one = words;
  for (U32 w = 0; w < warps; ++w) {
    Operation::run(present, RowWords(one));
    for (U32 i = 0; i < kExchangeInputs; ++i) one.in[i] += one.step[i] * kWarpLanes;
    for (U32*& out : one.out) out = out == nullptr ? out : out + kWarpLanes;
  }
}

template <class Operation>
constexpr WarpFunctionName named(const char* name) {
  return {name, on_slots<Operation>, on_words<Operation>};
}

constexpr WarpFunctionName kFunctions[] = {
    named<Shuffle<Kind::kUp>>("gpurun_warp_shfl_up"),
    named<Shuffle<Kind::kDown>>("gpurun_warp_shfl_down"),
    named<Shuffle<Kind::kButterfly>>("gpurun_warp_shfl_bfly"),
    named<Shuffle<Kind::kIndex>>("gpurun_warp_shfl_idx"),
    named<VoteAll>("gpurun_warp_vote_all"),
    named<VoteAny>("gpurun_warp_vote_any"),
    named<VoteUniform>("gpurun_warp_vote_uni"),
    named<VoteBallot>("gpurun_warp_vote_ballot"),
    named<MatchAny>("gpurun_warp_match_any"),
    named<MatchAll>("gpurun_warp_match_all"),
    named<Redux<Add>>("gpurun_warp_redux_add"),
    named<Redux<And>>("gpurun_warp_redux_and"),
    named<Redux<Or>>("gpurun_warp_redux_or"),
    named<Redux<Xor>>("gpurun_warp_redux_xor"),
    named<Redux<Min<std::int32_t>>>("gpurun_warp_redux_min_s32"),
    named<Redux<Max<std::int32_t>>>("gpurun_warp_redux_max_s32"),
    named<Redux<Min<U32>>>("gpurun_warp_redux_min_u32"),
    named<Redux<Max<U32>>>("gpurun_warp_redux_max_u32"),
    named<Elect>("gpurun_warp_elect"),
};

}  // namespace

std::span<const WarpFunctionName> warp_functions() { return kFunctions; }

}  // namespace gpurun::emulated
