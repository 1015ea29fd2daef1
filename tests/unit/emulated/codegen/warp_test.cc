// Warp instructions: every lane gets what the PTX ISA says, also when only some lanes of the warp
// take part.
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "kernel_harness.h"

namespace gpurun::emulated {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using Pair = std::pair<U64, U64>;
using Cases = std::vector<ThreadCase>;

constexpr unsigned kThreads = 64;

// Few different values, so that some lanes match. b differs between lanes.
std::vector<Inputs> lane_inputs() {
  std::vector<Inputs> inputs;
  for (U64 i = 0; i < kThreads; ++i) {
    inputs.push_back({i * 0x9e3779b97f4a7c15ull, i * 7 + (i >> 3), 0x8000000100000000ull + i / 5});
  }
  return inputs;
}

const std::vector<Inputs>& inputs() {
  static const auto* all = new std::vector<Inputs>(lane_inputs());
  return *all;
}
U32 a(unsigned thread) { return static_cast<U32>(inputs()[thread].a); }
bool odd_bit(unsigned thread) { return (inputs()[thread].a >> 7 & 1) != 0; }

// __shfl_sync and its kind as the CUDA C++ Programming Guide defines them, in segments of `width`.
Pair shuffled(const std::string& mode, unsigned thread, int amount, int width) {
  const int lane = static_cast<int>(thread % 32);
  const int base = lane & ~(width - 1);
  int from = lane;
  bool valid = true;
  if (mode == "idx") from = base + (amount & (width - 1));
  if (mode == "up") valid = (from = lane - amount) >= base;
  if (mode == "down") valid = (from = lane + amount) < base + width;
  if (mode == "bfly") valid = (from = lane ^ amount) < base + width;
  return {a(valid ? thread / 32 * 32 + static_cast<unsigned>(from) : thread), U64{valid}};
}

TEST(WarpInstructions, ShufflesMoveValuesWithinSegments) {
  Cases cases;
  for (const std::string mode : {"idx", "up", "down", "bfly"}) {
    for (int width : {32, 16, 8, 2, 1}) {
      for (int amount : {0, 1, 3, 9, 31}) {
        const int c = (32 - width) << 8 | (mode == "up" ? 0 : 31);
        cases.push_back({"shfl.sync." + mode + ".b32 %d32|%p, %a32, " + std::to_string(amount) +
                             ", " + std::to_string(c) + ", -1; selp.b32 %e32, 1, 0, %p;",
                         32,
                         [=](unsigned thread) { return shuffled(mode, thread, amount, width); }});
      }
    }
  }
  // A different amount for each lane, and no predicate.
  cases.push_back({"and.b32 %t0, %b32, 31; shfl.sync.idx.b32 %d32, %a32, %t0, 31, 0xffffffff;", 32,
                   [](unsigned thread) {
                     return Pair{a(thread / 32 * 32 + (inputs()[thread].b & 31)), 0};
                   }});
  check_threads(cases, inputs());
}

// The lanes of `thread`'s warp for which `choose` holds.
template <class Choose>
U32 lanes(unsigned thread, Choose choose) {
  U32 mask = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (choose(thread / 32 * 32 + lane)) mask |= U32{1} << lane;
  }
  return mask;
}

TEST(WarpInstructions, VotesCoverParticipatingLanes) {
  const std::string test = "bfe.u32 %t0, %a32, 7, 1; setp.ne.u32 %p, %t0, 0;";
  Cases cases;
  cases.push_back({test + "vote.sync.ballot.b32 %d32, %p, -1; vote.sync.ballot.b32 %e32, !%p, -1;",
                   32, [](unsigned thread) {
                     const U32 mask = lanes(thread, odd_bit);
                     return Pair{mask, ~mask};
                   }});
  for (const std::string mode : {"all", "any", "uni"}) {
    const auto result = [=](U32 yes, U32 of) {
      if (mode == "all") return yes == of;
      return mode == "any" ? yes != 0 : yes == of || yes == 0;
    };
    // First for all lanes, then for those that agree.
    cases.push_back({test + "vote.sync." + mode + ".pred %q, %p, -1; selp.b32 %d32, 1, 0, %q;\n" +
                         "@%p vote.sync.ballot.b32 %t1, %p, %t2;\n" +
                         "vote.sync.ballot.b32 %t1, %p, -1; not.b32 %t2, %t1;\n" +
                         "@%p vote.sync." + mode + ".pred %q, %p, %t1;\n@!%p vote.sync." + mode +
                         ".pred %q, %p, %t2; selp.b32 %e32, 1, 0, %q;",
                     32, [=](unsigned thread) {
                       const U32 yes = lanes(thread, odd_bit);
                       const bool own = odd_bit(thread);
                       return Pair{result(yes, ~U32{0}), result(own ? yes : 0, own ? yes : ~yes)};
                     }});
    cases.back().text.erase(cases.back().text.find("@%p vote.sync.ballot"),
                            std::string("@%p vote.sync.ballot.b32 %t1, %p, %t2;\n").size());
  }
  check_threads(cases, inputs());
}

TEST(WarpInstructions, MatchesFindEqualLanes) {
  Cases cases;
  const auto same = [](unsigned x, unsigned y) { return inputs()[x].c == inputs()[y].c; };
  const auto any = [=](unsigned thread) {
    return lanes(thread, [=](unsigned other) { return same(thread, other); });
  };
  cases.push_back({"match.any.sync.b32 %d32, %c32, -1; match.any.sync.b64 %e32, %c64, -1;", 32,
                   [=](unsigned thread) {
                     return Pair{any(thread), any(thread)};
                   }});
  // The high halves are all equal, the low ones differ.
  cases.push_back(
      {"shr.u64 %u0, %c64, 32; cvt.u32.u64 %t0, %u0;\n"
       "match.all.sync.b32 %d32|%p, %t0, -1; selp.b32 %e32, 1, 0, %p;",
       32, [](unsigned) {
         return Pair{~U32{0}, 1};
       }});
  cases.push_back(
      {"match.all.sync.b64 %d32|%p, %c64, -1; selp.b32 %e32, 1, 0, %p;", 32, [](unsigned) {
         return Pair{0, 0};
       }});
  // Groups of five lanes, each within itself.
  cases.push_back(
      {"match.any.sync.b64 %t0, %c64, -1; match.all.sync.b64 %d32|%p, %c64, %t0;\n"
       "selp.b32 %e32, 1, 0, %p;",
       32, [=](unsigned thread) {
         return Pair{any(thread), 1};
       }});
  check_threads(cases, inputs());
}

TEST(WarpInstructions, ReductionsCoverLanesOfMask) {
  Cases cases;
  const auto add = [&](const std::string& operation, const std::string& type, auto combine) {
    const auto over = [=](unsigned thread, U32 mask) {
      bool first = true;
      U32 total = 0;
      for (unsigned lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1) == 0) continue;
        const U32 value = a(thread / 32 * 32 + lane);
        total = first ? value : combine(total, value);
        first = false;
      }
      return total;
    };
    cases.push_back({"redux.sync." + operation + "." + type + " %d32, %a32, -1;\n" +
                         "setp.lt.u32 %p, %i, 40; vote.sync.ballot.b32 %t0, %p, -1;\n" +
                         "@%p redux.sync." + operation + "." + type + " %e32, %a32, %t0;",
                     32, [=](unsigned thread) {
                       const U32 mask = lanes(thread, [](unsigned t) { return t < 40; });
                       return Pair{over(thread, ~U32{0}), thread < 40 ? over(thread, mask) : 0};
                     }});
  };
  const auto sum = [](U32 x, U32 y) { return x + y; };
  using S32 = std::int32_t;
  add("add", "u32", sum);
  add("add", "s32", sum);
  add("min", "u32", [](U32 x, U32 y) { return std::min(x, y); });
  add("max", "u32", [](U32 x, U32 y) { return std::max(x, y); });
  add("min", "s32", [](U32 x, U32 y) { return static_cast<U32>(std::min(S32(x), S32(y))); });
  add("max", "s32", [](U32 x, U32 y) { return static_cast<U32>(std::max(S32(x), S32(y))); });
  add("and", "b32", [](U32 x, U32 y) { return x & y; });
  add("or", "b32", [](U32 x, U32 y) { return x | y; });
  add("xor", "b32", [](U32 x, U32 y) { return x ^ y; });
  check_threads(cases, inputs());
}

TEST(WarpInstructions, ActiveMaskElectAndWarpBarrierMatchIsa) {
  Cases cases;
  cases.push_back({"activemask.b32 %d32; setp.lt.u32 %p, %i, 40; @%p activemask.b32 %e32;", 32,
                   [](unsigned thread) {
                     return Pair{~U32{0}, thread < 32 ? ~U32{0} : thread < 40 ? U32{0xff} : U32{0}};
                   }});
  cases.push_back({"elect.sync %d32|%p, -1; selp.b32 %e32, 1, 0, %p;", 32, [](unsigned thread) {
                     return Pair{0, thread % 32 == 0};
                   }});
  cases.push_back(
      {"mov.u32 %t0, 0xf0; and.b32 %t1, %i, 31; setp.ge.u32 %p, %t1, 4;\n"
       "setp.lt.and.u32 %p, %t1, 8, %p; @%p elect.sync _|%q, %t0;\n"
       "selp.b32 %d32, 1, 0, %p; @%p selp.b32 %e32, 1, 0, %q;",
       32, [](unsigned thread) {
         const unsigned lane = thread % 32;
         return Pair{lane >= 4 && lane < 8, lane == 4};
       }});
  // Each lane reads its neighbour's cell. Without the barrier the neighbour has not written it yet.
  for (const char* name : {"bar.warp.sync"}) {
    cases.push_back({"st.shared.b32 [%own], %a32; " + std::string(name) +
                         " -1; xor.b32 %t0, %i, 1; sub.u32 %t1, %t0, %i;\n"
                         "mad.lo.s32 %t1, %t1, 16, %own; ld.shared.b32 %d32, [%t1];",
                     32, [](unsigned thread) {
                       return Pair{a(thread ^ 1), 0};
                     }});
  }
  check_threads(cases, inputs());
}

TEST(WarpInstructions, FormsWithoutSyncAreRefused) {
  for (const char* line : {"shfl.idx.b32 %r0, %r1, 0, 31;", "vote.all.pred %p, %p;"}) {
    const Status status = run_kernel(
        ".version 6.0\n.target sm_60\n.address_size 64\n.entry k() {\n.reg .b32 %r<2>;\n"
        ".reg .pred %p;\n" +
            std::string(line) + "\nret;\n}\n",
        nullptr, nullptr);
    EXPECT_EQ(status.code(), Code::kRefused) << line;
  }
}

}  // namespace
}  // namespace gpurun::emulated
