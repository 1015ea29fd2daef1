// Cuts: lanes that come together to a barrier or a warp operation, and lanes that do not, see each
// other's values as threads do.
#include <gtest/gtest.h>

#include "both_tiers.h"

namespace gpurun::emulated {
namespace {

TEST(RegionCuts, BarriersInLoopShareTile) {
  expect_equal(
      kernel_text(
          ".shared .align 16 .b8 s[1024];\n",
          "mov.u32 %r2, 0; mov.u32 %r3, %i; shl.b32 %r4, %x, 2; mov.u32 %r5, s; add.s32 %r6, %r4, "
          "%r5;\n"
          "loop: st.shared.u32 [%r6], %r3; bar.sync 0; mov.u32 %r7, 0; mov.u32 %r8, %r5;\n"
          "sum: ld.shared.u32 %r9, [%r8]; mad.lo.s32 %r3, %r9, 31, %r3; add.s32 %r8, %r8, 4;\n"
          "add.s32 %r7, %r7, 1; setp.lt.u32 %p0, %r7, 100; @%p0 bra sum; bar.sync 0;\n"
          "add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %n; @%p1 bra loop; st.global.u32 [%own], "
          "%r3;"),
      {{3, 1, 1}, {100, 1, 1}}, 300, 5);
}

// Values that are equal within a slice on each path, but not after lanes have taken different
// paths.
TEST(RegionCuts, DivergedPathsKeepTheirValuesAfterBarrier) {
  expect_equal(
      kernel_text(
          ".shared .align 16 .b8 s[1024];\n",
          "and.b32 %r2, %x, 1; setp.eq.s32 %p0, %r2, 0; @%p0 bra even;\n"
          "mov.u32 %r3, 3; mov.u64 %w0, 40; bra met; even: mov.u32 %r3, 8; mov.u64 %w0, 0;\n"
          "met: bar.sync 0; mov.u32 %r4, 0; mov.u32 %r5, 0;\n"
          "loop: mad.lo.s32 %r5, %r4, %r3, %r5; add.s32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r3;\n"
          "@%p1 bra loop; add.s64 %w1, %out, %w0; ld.global.u32 %r6, [%w1+4000];\n"
          "add.s32 %r5, %r5, %r6; st.global.u32 [%own], %r5;"),
      {{2, 1, 1}, {64, 1, 1}}, 1100, 0);
}

// Predicates stay valid across a wait that slices reach and single lanes leave, and the other way
// round.
TEST(RegionCuts, PredicatesSurviveWaitsOnEveryPath) {
  expect_equal(
      kernel_text("",
                  "ld.global.u32 %r2, [%own]; and.b32 %r3, %r2, 1; setp.eq.s32 %p0, %r3, 0;\n"
                  "setp.lt.u32 %p1, %x, 13; setp.gt.u32 %p4, %x, 50; mov.u32 %r4, 0;\n"
                  "@!%p1 bra first; add.s32 %r4, %r2, 7; first: bar.sync 0; @%p0 bra zero;\n"
                  "add.s32 %r4, %r4, 1; zero: bar.sync 0; @%p1 bra less; add.s32 %r4, %r4, 2;\n"
                  "less: shfl.sync.down.b32 %r5|%p2, %r4, 1, 31, -1; bar.sync 0;\n"
                  "@!%p4 bra high; add.s32 %r4, %r4, %r5; high: bar.sync 0;\n"
                  "selp.b32 %r6, 16, 0, %p0; selp.b32 %r7, 32, 0, %p2; add.s32 %r4, %r4, %r6;\n"
                  "add.s32 %r4, %r4, %r7; st.global.u32 [%own], %r4;"),
      {{3, 1, 1}, {100, 1, 1}}, 300, 0);
}

TEST(RegionCuts, EndedThreadsCountAsArrived) {
  const std::string text = kernel_text(".shared .align 16 .b8 s[1024];\n",
                                       "setp.ge.u32 %p0, %x, %n; @%p0 bra end; shl.b32 %r2, %x, 2; "
                                       "mov.u32 %r3, s; add.s32 %r2, %r2, %r3;\n"
                                       "st.shared.u32 [%r2], %i; bar.sync 0; sub.s32 %r4, %n, %x; "
                                       "add.s32 %r4, %r4, -1; shl.b32 %r4, %r4, 2;\n"
                                       "add.s32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4]; bar.sync "
                                       "0; st.global.u32 [%own], %r5; end:");
  for (const std::uint32_t n : {1u, 13u, 32u, 95u, 96u}) {
    expect_equal(text, {{2, 1, 1}, {96, 1, 1}}, 300, n);
  }
}

TEST(RegionCuts, BlockHalvesUseDifferentBarriers) {
  expect_equal(
      kernel_text(
          ".shared .align 16 .b8 s[512];\n",
          "shl.b32 %r2, %x, 2; mov.u32 %r3, s; add.s32 %r2, %r2, %r3; st.shared.u32 [%r2], %i;\n"
          "setp.lt.u32 %p0, %x, 64; @%p0 bra low; bar.sync 1, 64; bra both; low: bar.sync 2, 64;\n"
          "both: xor.b32 %r4, %x, 33; shl.b32 %r4, %r4, 2; add.s32 %r4, %r4, %r3;\n"
          "ld.shared.u32 %r5, [%r4]; st.global.u32 [%own], %r5;"),
      {{2, 1, 1}, {128, 1, 1}}, 300, 0);
}

TEST(RegionCuts, BarrierReductionsMatchThreads) {
  expect_equal(
      kernel_text(
          "",
          "rem.u32 %r2, %i, 3; setp.eq.s32 %p0, %r2, 1; bar.red.popc.u32 %r3, 0, %p0;\n"
          "setp.lt.u32 %p1, %x, 90; bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, %p0;\n"
          "selp.b32 %r4, 1000, 0, %p2; selp.b32 %r5, 2000, 0, %p3; add.s32 %r3, %r3, %r4;\n"
          "add.s32 %r3, %r3, %r5; st.global.u32 [%own], %r3;"),
      {{3, 1, 1}, {100, 1, 1}}, 300, 0);
}

TEST(RegionCuts, FullAndPartialWarpsExchangeValues) {
  const std::string text = kernel_text("",
                                       "ld.global.u32 %r2, [%own]; shfl.sync.down.b32 %r3|%p0, "
                                       "%r2, 3, 31, -1; shfl.sync.bfly.b32 %r4, %r3, 5, 31, -1;\n"
                                       "selp.b32 %r5, 1, 2, %p0; add.s32 %r4, %r4, %r5; "
                                       "vote.sync.ballot.b32 %r6, %p0, -1; xor.b32 %r4, %r4, %r6;\n"
                                       "match.any.sync.b32 %r7, %r5, -1; add.s32 %r4, %r4, %r7; "
                                       "redux.sync.add.s32 %r8, %x, -1; add.s32 %r4, %r4, %r8;\n"
                                       "st.global.u32 [%own], %r4;");
  for (const std::uint32_t threads : {32u, 96u, 50u}) {
    expect_equal(text, {{2, 1, 1}, {threads, 1, 1}}, 300, 0);
  }
}

TEST(RegionCuts, PartialMasksSynchroniseOnlyTheirLanes) {
  expect_equal(
      kernel_text("",
                  "and.b32 %r2, %x, 3; setp.eq.s32 %p0, %r2, 0; @%p0 bra some;\n"
                  "shfl.sync.idx.b32 %r3, %i, 1, 31, 0xeeeeeeee; bra both;\n"
                  "some: shfl.sync.bfly.b32 %r3, %i, 4, 31, 0x11111111; redux.sync.max.u32 %r4, "
                  "%r3, 0x11111111;\n"
                  "add.s32 %r3, %r3, %r4; both: bar.warp.sync -1; st.global.u32 [%own], %r3;"),
      {{2, 1, 1}, {64, 1, 1}}, 300, 0);
}

TEST(RegionCuts, FirstWarpContinuesAfterOtherWarpsEnd) {
  // As at the end of a reduction: the first warp continues to shuffle after the others have ended.
  expect_equal(
      kernel_text(
          ".shared .align 16 .b8 s[64];\n",
          "mov.u32 %r2, %i; redux.sync.add.s32 %r3, %r2, -1; and.b32 %r4, %x, 31; shr.u32 %r5, %x, "
          "5;\n"
          "shl.b32 %r5, %r5, 2; mov.u32 %r6, s; add.s32 %r5, %r5, %r6; setp.ne.s32 %p0, %r4, 0;\n"
          "@%p0 bra skip; st.shared.u32 [%r5], %r3; skip: bar.sync 0; setp.gt.u32 %p1, %x, 31; "
          "@%p1 bra end;\n"
          "mov.u32 %r7, 0; setp.gt.u32 %p2, %x, 3; @%p2 bra none; shl.b32 %r8, %x, 2; add.s32 %r8, "
          "%r8, %r6;\n"
          "ld.shared.u32 %r7, [%r8]; none: redux.sync.add.s32 %r9, %r7, -1; setp.ne.s32 %p3, %x, "
          "0; @%p3 bra end;\n"
          "st.global.u32 [%own], %r9; end:"),
      {{3, 1, 1}, {128, 1, 1}}, 400, 0);
}

// Errors
// --------------------------------------------------------------------------------------------

TEST(RegionCuts, FaultReportsSameErrorAsThreads) {
  const std::string text =
      kernel_text("",
                  "setp.ne.u32 %p0, %i, %n; mov.u64 %w0, %own; @%p0 bra good; mov.u64 %w0, 64;\n"
                  "good: ld.global.u32 %r2, [%w0]; st.global.u32 [%own], %r2;");
  const std::vector<std::uint32_t> memory(300, 1);
  const Outcome threads = run_as_threads(text, {{2, 1, 1}, {100, 1, 1}}, memory, 142);
  const Outcome regions = run_as_regions(text, {{2, 1, 1}, {100, 1, 1}}, memory, 142);
  EXPECT_EQ(threads.result.code, kGridIllegalAddress);
  EXPECT_EQ(regions.result.code, kGridIllegalAddress);
  EXPECT_EQ(regions.result.message, threads.result.message);
  EXPECT_EQ(regions.result.address, 64u);
  EXPECT_EQ(regions.result.block.x, 1u);
  EXPECT_EQ(regions.result.thread.x / kSliceLanes, threads.result.thread.x / kSliceLanes);
}

TEST(RegionCuts, TrapReportsItsThread) {
  const std::string text = kernel_text(
      "", "setp.ne.u32 %p0, %i, %n; @%p0 bra good; trap; good: st.global.u32 [%own], %i;");
  const std::vector<std::uint32_t> memory(300, 1);
  const Outcome threads = run_as_threads(text, {{1, 1, 1}, {20, 5, 1}}, memory, 13);
  const Outcome regions = run_as_regions(text, {{1, 1, 1}, {20, 5, 1}}, memory, 13);
  EXPECT_EQ(regions.result.code, kGridLaunchFailed);
  EXPECT_EQ(regions.result.message, threads.result.message);
  EXPECT_EQ(regions.result.thread.x, 13u);
  EXPECT_EQ(regions.result.thread.y, threads.result.thread.y);
}

TEST(RegionCuts, BarrierDeadlockIsReported) {
  const std::string text = kernel_text("",
                                       "setp.lt.u32 %p0, %x, 32; @%p0 bra low; bar.sync 1; bra "
                                       "end; low: bar.sync 2; end: st.global.u32 [%own], 1;");
  const std::vector<std::uint32_t> memory(300, 1);
  const Outcome regions = run_as_regions(text, {{1, 1, 1}, {64, 1, 1}}, memory, 0);
  EXPECT_EQ(regions.result.code, kGridLaunchTimeout);
  EXPECT_NE(regions.result.message.find("32 arrived at barrier 1"), std::string::npos)
      << regions.result.message;
}

}  // namespace
}  // namespace gpurun::emulated
