// Exchanges between the lanes of a warp: whole warps make them at once, others lane by lane. Both
// get the results that threads get.
#include <gtest/gtest.h>

#include "both_tiers.h"

namespace gpurun::emulated {
namespace {

// Adds %r3 and %p1 to the sum in %r20.
constexpr char kAddBoth[] =
    "selp.b32 %r4, 77, 5, %p1; mad.lo.s32 %r20, %r20, 31, %r3; add.s32 %r20, %r20, %r4;\n";

// A word for each thread of a block with three dimensions. %r2 and the sum start with its contents.
std::string begin() {
  return "mov.u32 %r21, %ntid.y; mov.u32 %r22, %ntid.z; mov.u32 %r23, %tid.z; mov.u32 %r24, "
         "%tid.y;\n"
         "mad.lo.s32 %r22, %r0, %r22, %r23; mad.lo.s32 %r22, %r22, %r21, %r24;\n"
         "mad.lo.s32 %r22, %r22, %r1, %x; mul.wide.u32 %own, %r22, 4; add.s64 %own, %own, %out;\n"
         "ld.global.u32 %r2, [%own]; mov.u32 %r20, %r2;\n";
}
std::string end() { return "st.global.u32 [%own], %r20;"; }

void expect_equal_in_all_shapes(const std::string& text, std::uint32_t n = 0) {
  for (const Extent block : {Extent{32, 1, 1}, Extent{256, 1, 1}, Extent{50, 1, 1}, Extent{8, 8, 2},
                             Extent{5, 7, 1}, Extent{100, 2, 1}}) {
    expect_equal(text, {{3, 1, 1}, block}, 3 * block.count(), n);
  }
}

class WarpShuffles : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, WarpShuffles, testing::Values("up", "down", "bfly", "idx"));

TEST_P(WarpShuffles, FullWarpsShuffleByConstants) {
  const std::string kind = GetParam();
  for (const char* clamp : {"31", "0", "0x181f", "0x1c1f", "0x1800", "0x70b"}) {
    std::string body = begin();
    for (const int by : {0, 1, 2, 3, 4, 8, 15, 16, 31, 33}) {
      body += "shfl.sync." + kind + ".b32 %r3|%p1, %r20, " + std::to_string(by) + ", " + clamp +
              ", -1;\n" + kAddBoth;
    }
    const std::string text = kernel_text("", body + end());
    for (const std::uint32_t threads : {50u, 256u}) {
      expect_equal(text, {{2, 1, 1}, {threads, 1, 1}}, 2 * threads, 0);
    }
  }
}

// Amounts, clamps and masks that differ by lane.
TEST_P(WarpShuffles, FullWarpsShuffleByLaneValues) {
  const std::string kind = GetParam();
  expect_equal_in_all_shapes(
      kernel_text("", begin() +
                          "mul.lo.s32 %r5, %x, 7; and.b32 %r6, %r2, 0x1f1f; setp.eq.u32 %p7, %n, "
                          "12345; selp.b32 %r7, 1, -1, %p7;\n"
                          "shfl.sync." +
                          kind + ".b32 %r3|%p1, %r20, %r5, 31, -1;\n" + kAddBoth + "shfl.sync." +
                          kind + ".b32 %r3|%p1, %r20, 2, %r6, %r7;\n" + kAddBoth + "shfl.sync." +
                          kind + ".b32 %r3|%p1, %r20, %n, 31, %r7;\n" + kAddBoth + end()),
      5);
}

TEST_P(WarpShuffles, DivergedLanesShuffle) {
  const std::string kind = GetParam();
  for (const std::string mask : {"-1", "%r7"}) {
    expect_equal_in_all_shapes(
        kernel_text("", begin() +
                            "and.b32 %r5, %r2, 4; setp.eq.s32 %p2, %r5, 0; setp.eq.u32 %p7, %n, "
                            "12345; selp.b32 %r7, 1, -1, %p7;\n"
                            "@%p2 bra other; shfl.sync." +
                            kind + ".b32 %r3|%p1, %r20, 3, 31, " + mask +
                            "; bra met;\n"
                            "other: add.s32 %r20, %r20, 9;\n"
                            "shfl.sync." +
                            kind + ".b32 %r3|%p1, %r20, 3, 31, " + mask +
                            "; add.s32 %r3, %r3, 1;\n"
                            "met:\n" +
                            kAddBoth + "shfl.sync." + kind + ".b32 %r3|%p1, %r20, 1, 31, " + mask +
                            ";\n" + kAddBoth + end()));
  }
}

// Some lanes of each warp have ended, but the others' masks may still name them.
TEST_P(WarpShuffles, WarpsWithEndedLanesShuffle) {
  const std::string kind = GetParam();
  const std::string text =
      kernel_text("", begin() +
                          "and.b32 %r5, %x, 31; setp.ge.u32 %p2, %r5, %n; @%p2 bra end;\n"
                          "shfl.sync." +
                          kind + ".b32 %r3|%p1, %r20, 2, 31, -1;\n" + kAddBoth +
                          "setp.eq.u32 %p3, %r5, 3; @%p3 bra end;\n"
                          "shfl.sync." +
                          kind + ".b32 %r3|%p1, %r20, 1, 31, -1;\n" + kAddBoth + end() + "end:");
  for (const std::uint32_t n : {1u, 8u, 17u, 32u}) expect_equal_in_all_shapes(text, n);
}

// Masks that divide a warp. Each lane uses its own, at one place.
TEST_P(WarpShuffles, WarpGroupsShuffle) {
  const std::string kind = GetParam();
  const auto group_text = [&](const std::string& masks) {
    return kernel_text("", begin() + "and.b32 %r5, %x, 31; mov.u32 %r6, 1;\n" + masks +
                               "shfl.sync." + kind + ".b32 %r3|%p1, %r20, 2, %r8, %r7;\n" +
                               kAddBoth + "vote.sync.ballot.b32 %r3, %p1, %r7;\n" + kAddBoth +
                               "redux.sync.add.s32 %r3, %r20, %r7;\n" + kAddBoth +
                               "match.any.sync.b32 %r3, %r5, %r7;\n" + kAddBoth +
                               "bar.warp.sync %r7; elect.sync %r3|%p1, %r7;\n" + kAddBoth + end());
  };
  const std::vector<Extent> blocks = {{256, 1, 1}, {50, 1, 1}};
  for (const Extent block : blocks) {
    for (const int width : {16, 4, 1}) {
      const std::string ones = std::to_string((1u << width) - 1);
      expect_equal(group_text("and.b32 %r9, %r5, " + std::to_string(32 - width) +
                              "; mov.u32 %r7, " + ones + "; shl.b32 %r7, %r7, %r9; mov.u32 %r8, " +
                              std::to_string((32 - width) << 8 | (kind == "up" ? 0 : 31)) + ";\n"),
                   {{2, 1, 1}, block}, 2 * block.count(), 0);
    }
    expect_equal(group_text("and.b32 %r9, %r5, 1; mov.u32 %r7, 0x55555555;\n"
                            "shl.b32 %r7, %r7, %r9; mov.u32 %r8, 31;\n"),
                 {{2, 1, 1}, block}, 2 * block.count(), 0);
  }
}

// One side of a branch is a whole group, while the other side waits or goes on.
TEST_P(WarpShuffles, BranchedWarpHalvesShuffle) {
  const std::string kind = GetParam();
  for (const std::string low : {"0xffff", "%r7"}) {
    for (const bool high_ends : {false, true}) {
      expect_equal_in_all_shapes(
          kernel_text("", begin() +
                              "mov.u32 %r5, %laneid; add.s32 %r7, %n, 0xffff; mov.u32 %r6, 0;\n"
                              "setp.lt.u32 %p2, %r5, 16; @!%p2 bra high;\n"
                              "loop: shfl.sync." +
                              kind + ".b32 %r3|%p1, %r20, 3, 31, " + low + ";\n" + kAddBoth +
                              "add.s32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 3; @%p3 bra loop;\n" +
                              "bra met; high: redux.sync.add.s32 %r3, %r20, 0xffff0000;\n"
                              "add.s32 %r20, %r20, %r3;\n" +
                              (high_ends ? end() + "bra end;\n" : "") + "met: shfl.sync." + kind +
                              ".b32 %r3|%p1, %r20, 1, 31, -1;\n" + kAddBoth + end() + "end:"));
    }
  }
}

TEST(WarpExchanges, VotesMatchesAndReductionsMatchThreads) {
  for (const std::string mask : {"-1", "%r7"}) {
    std::string body = begin() +
                       "setp.eq.u32 %p7, %n, 12345; selp.b32 %r7, 1, -1, %p7; and.b32 %r8, %r2, 3; "
                       "mov.b64 %w0, {%r8, %r2};\n"
                       "setp.eq.s32 %p2, %r8, 1; setp.ne.s32 %p3, %n, 77;\n";
    for (const std::string kind : {"all", "any", "uni"}) {
      for (const std::string from : {"%p2", "%p3"}) {
        body += "vote.sync." + kind + ".pred %p1, " + from + ", " + mask + "; mov.u32 %r3, 1;\n" +
                kAddBoth;
      }
    }
    body += "mov.pred %p1, %p2;\n";
    for (const std::string operation :
         {"vote.sync.ballot.b32 %r3, %p2", "match.any.sync.b32 %r3, %r8",
          "match.any.sync.b64 %r3, %w0", "redux.sync.add.s32 %r3, %r20",
          "redux.sync.min.s32 %r3, %r20", "redux.sync.max.u32 %r3, %r20",
          "redux.sync.xor.b32 %r3, %r20"}) {
      body += operation + ", " + mask + ";\n" + kAddBoth;
    }
    body += "match.all.sync.b32 %r3|%p1, %r8, " + mask + ";\n" + kAddBoth;
    body += "match.all.sync.b32 %r3|%p1, %n, " + mask + ";\n" + kAddBoth;
    body += "elect.sync %r3|%p1, " + mask + ";\n" + kAddBoth;
    body += "bar.warp.sync " + mask + ";\n";
    expect_equal_in_all_shapes(kernel_text("", body + end()));
  }
}

// Results that are used only after further waits.
TEST(WarpExchanges, ResultsSurviveLaterWaits) {
  expect_equal_in_all_shapes(kernel_text(
      "", begin() +
              "shfl.sync.up.b32 %r5|%p1, %r2, 1, 0, -1; shfl.sync.down.b32 %r6|%p2, %r2, 5, "
              "31, -1;\n"
              "bar.sync 0; vote.sync.ballot.b32 %r7, %p1, -1; bar.sync 0;\n"
              "selp.b32 %r8, 100, 0, %p1; selp.b32 %r9, 1000, 0, %p2; add.s32 %r8, %r8, %r9;\n"
              "add.s32 %r8, %r8, %r5; add.s32 %r8, %r8, %r6; add.s32 %r20, %r8, %r7;\n" +
              end()));
}

// Warps that loop for different numbers of turns, and end or reach barriers at different times.
TEST(WarpExchanges, WarpsLoopIndependently) {
  const std::string text = kernel_text(
      ".shared .align 16 .b8 s[2048];\n",
      begin() +
          "shr.u32 %r5, %x, 5; mov.u32 %r6, 0; setp.eq.u32 %p2, %r5, %n; shl.b32 %r9, %x, 2;\n"
          "mov.u32 %r10, s; add.s32 %r9, %r9, %r10; st.shared.u32 [%r9], %r2; @%p2 bra end;\n"
          "loop: shfl.sync.bfly.b32 %r3|%p1, %r20, 4, 31, -1;\n" +
          kAddBoth +
          "add.s32 %r6, %r6, 1; setp.le.u32 %p3, %r6, %r5; @%p3 bra loop;\n"
          "st.shared.u32 [%r9], %r20; bar.sync 0; xor.b32 %r11, %x, 32; shl.b32 %r11, %r11, 2;\n"
          "add.s32 %r11, %r11, %r10; ld.shared.u32 %r12, [%r11]; add.s32 %r20, %r20, %r12;\n"
          "setp.gt.u32 %p4, %r5, 3; @%p4 bra high; bar.sync 1, 128;\n"
          "high: st.global.u32 [%own], %r20; end:");
  for (const std::uint32_t n : {4u, 5u, 9u}) {
    expect_equal(text, {{3, 1, 1}, {256, 1, 1}}, 768, n);
  }
}

// Half a warp and whole warps at a barrier that counts them all, and a barrier that completes
// before the last warp has come.
TEST(WarpExchanges, BarriersCountWarpsAndLanes) {
  expect_equal(
      kernel_text(
          ".shared .align 16 .b8 s[1024];\n",
          begin() +
              "shl.b32 %r9, %x, 2; mov.u32 %r10, s; add.s32 %r9, %r9, %r10;\n"
              "st.shared.u32 [%r9], %r2; setp.lt.u32 %p2, %x, 40; @%p2 bra low;\n"
              "setp.lt.u32 %p3, %x, 64; selp.b32 %r5, 0xffffff00, -1, %p3;\n"
              "shfl.sync.down.b32 %r3|%p1, %r20, 1, 31, %r5;\n" +
              kAddBoth +
              "bar.sync 0; bra both; low: bar.sync 0; add.s32 %r20, %r20, 3;\n"
              "both: sub.s32 %r11, 127, %x; shl.b32 %r11, %r11, 2; add.s32 %r11, %r11, %r10;\n"
              "ld.shared.u32 %r12, [%r11]; add.s32 %r20, %r20, %r12;\n" +
              end()),
      {{2, 1, 1}, {128, 1, 1}}, 256, 0);
}

TEST(WarpExchanges, EndedWarpsCompleteBarrier) {
  const std::string text = kernel_text(
      ".shared .align 16 .b8 s[1024];\n",
      begin() +
          "shl.b32 %r9, %x, 2; mov.u32 %r10, s; add.s32 %r9, %r9, %r10;\n"
          "st.shared.u32 [%r9], %r2; bar.sync 0; setp.ge.u32 %p2, %x, %n; @%p2 bra slow;\n"
          "bar.sync 0; shfl.sync.down.b32 %r3|%p1, %r20, 1, 31, -1;\n" +
          kAddBoth +
          "sub.s32 %r11, 255, %x; shl.b32 %r11, %r11, 2; add.s32 %r11, %r11, %r10;\n"
          "ld.shared.u32 %r12, [%r11]; add.s32 %r20, %r20, %r12; bra end;\n"
          "slow: redux.sync.add.s32 %r3, %r2, -1; add.s32 %r20, %r20, %r3;\n"
          "st.shared.u32 [%r9], %r20;\n end:" +
          end());
  for (const std::uint32_t n : {32u, 64u, 224u}) {
    expect_equal(text, {{2, 1, 1}, {256, 1, 1}}, 512, n);
  }
}

}  // namespace
}  // namespace gpurun::emulated
