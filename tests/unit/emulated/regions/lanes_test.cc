// Lanes that run together leave the same results as separate threads, also when neighbours differ,
// part, wrap, or meet in memory.
#include <gtest/gtest.h>

#include "both_tiers.h"

namespace gpurun::emulated {
namespace {

const Shape2 kLine{{3, 1, 1}, {100, 1, 1}};  // Whole slices and a rest.

TEST(VectorLanes, GuardedStoresStopAtBound) {
  // c[i] = a[i] + b[i], if i < n: the last slice parts.
  const std::string text =
      kernel_text("",
                  "setp.ge.s32 %p0, %i, %n; @%p0 bra end;\n"
                  "ld.global.f32 %f0, [%own+4000]; ld.global.f32 %f1, [%own+8000];\n"
                  "add.f32 %f2, %f0, %f1; st.global.f32 [%own], %f2;\nend:");
  for (const std::uint32_t n : {1u, 7u, 8u, 205u, 300u}) {
    const auto memory = expect_equal(text, kLine, 4000, n);
    EXPECT_EQ(memory[n], static_cast<std::uint32_t>(n * 2654435761u)) << "beyond n";
  }
}

TEST(VectorLanes, LanesLeaveLoopIndependently) {
  // Collatz steps: at each turn lanes part, and leave the loop one by one.
  expect_equal(kernel_text("",
                           "add.s32 %r2, %i, 1; mov.u32 %r3, 0;\n"
                           "loop: setp.le.u32 %p0, %r2, 1; @%p0 bra done; add.s32 %r3, %r3, 1;\n"
                           "and.b32 %r4, %r2, 1; setp.eq.s32 %p1, %r4, 0; @%p1 bra even;\n"
                           "mad.lo.s32 %r2, %r2, 3, 1; bra loop;\n"
                           "even: shr.u32 %r2, %r2, 1; bra loop;\n"
                           "done: st.global.u32 [%own], %r3;"),
               kLine, 300, 0);
}

TEST(VectorLanes, SwitchTakesEachLaneToItsCase) {
  expect_equal(kernel_text("",
                           "rem.u32 %r2, %i, 5; ts: .branchtargets a, b, c; mov.u32 %r3, 9;\n"
                           "setp.gt.u32 %p0, %r2, 2; @%p0 bra end; brx.idx %r2, ts;\n"
                           "a: mov.u32 %r3, 100; bra end; b: mov.u32 %r3, 200; bra end;\n"
                           "c: mov.u32 %r3, %i; end: st.global.u32 [%own], %r3;"),
               kLine, 300, 0);
}

// The 32-bit index wraps at 2^32 or 2^31 inside a slice, and does not continue in 64 bits.
TEST(VectorLanes, IndexWrapsInsideSlice) {
  for (const char* extend : {"cvt.u64.u32", "cvt.s64.s32"}) {
    // index = (i + n), extended, then brought back into the memory by a mask.
    const std::string text =
        kernel_text("", std::string("add.s32 %r2, %i, %n; ") + extend +
                            " %w0, %r2; shr.u64 %w1, %w0, 31; and.b64 %w1, %w1, 1023;\n"
                            "and.b64 %w2, %w0, 511; shl.b64 %w3, %w2, 2; add.s64 %w3, %w3, %out;\n"
                            "cvt.u32.u64 %r3, %w1; st.global.u32 [%w3], %r3;");
    for (const std::uint32_t n : {0u, 0xfffffffdu, 0x7ffffffau, 0x80000000u, 0xffffff00u}) {
      expect_equal(text, kLine, 1024, n);
    }
  }
}

// Shared addresses wrap at 32 bits before they are added to the window's base.
TEST(VectorLanes, SharedAddressWraps) {
  expect_equal(
      kernel_text(
          ".shared .align 16 .b8 s[2048];\n",
          "mov.u32 %r2, s; add.s32 %r3, %x, -4; shl.b32 %r4, %r3, 2; add.s32 %r4, %r4, %r2;\n"
          "st.shared.u32 [%r4+16], %i; bar.sync 0;\n"
          "xor.b32 %r5, %x, 1; shl.b32 %r5, %r5, 2; add.s32 %r5, %r5, %r2;\n"
          "ld.shared.u32 %r6, [%r5]; st.global.u32 [%own], %r6;"),
      {{2, 1, 1}, {96, 1, 1}}, 300, 0);
}

// Updates of one slice's lanes must not be lost.
TEST(VectorLanes, SharedAtomicsOfOneSliceAllCount) {
  const auto memory = expect_equal(
      kernel_text(
          ".shared .align 16 .b8 s[64];\n",
          "setp.gt.u32 %p0, %x, 15; @%p0 bra filled;\n"
          "shl.b32 %r2, %x, 2; mov.u32 %r3, s; add.s32 %r3, %r3, %r2;\n"
          "st.shared.u32 [%r3], 0; filled: bar.sync 0;\n"
          "rem.u32 %r4, %x, 3; shl.b32 %r4, %r4, 2; mov.u32 %r5, s; add.s32 %r4, %r4, %r5;\n"
          "atom.shared.add.u32 %r6, [%r4], 1; atom.shared.max.u32 %r7, [%r4+16], %x;\n"
          "atom.shared.add.f32 %f1, [%r4+32], 0f3f800000; bar.sync 0;\n"
          "setp.gt.u32 %p1, %x, 15; @%p1 bra end; ld.shared.u32 %r9, [%r3];\n"
          "st.global.u32 [%own], %r9; end:"),
      {{1, 1, 1}, {96, 1, 1}}, 100, 0);
  EXPECT_EQ(memory[0], 32u);
  EXPECT_EQ(memory[1], 32u);
  EXPECT_EQ(memory[4], 93u);
}

TEST(VectorLanes, GlobalAtomicsCountEachLane) {
  const auto memory = expect_equal(
      kernel_text("",
                  "rem.u32 %r2, %x, 5; mul.wide.u32 %w0, %r2, 4; add.s64 %w0, %w0, %out;\n"
                  "setp.ne.s32 %p0, %n, 0; @%p0 bra end; red.global.add.u32 [%w0], 1;\n"
                  "atom.global.add.f32 %f1, [%w0+64], 0f3f800000; end:"),
      {{4, 1, 1}, {40, 1, 1}}, 64, 0);
  EXPECT_EQ(memory[0], 32u);
}

// Each lane has its own local memory, with an index that differs by lane.
TEST(VectorLanes, EachLaneHasOwnLocalMemory) {
  expect_equal(kernel_text(".local .align 4 .b8 l[64];\n",
                           "mov.u64 %w0, l; cvta.local.u64 %w0, %w0; mov.u32 %r2, 0;\n"
                           "fill: mul.wide.u32 %w1, %r2, 4; add.s64 %w1, %w1, %w0;\n"
                           "mad.lo.s32 %r3, %r2, %i, 7; st.u32 [%w1], %r3; add.s32 %r2, %r2, 1;\n"
                           "setp.lt.u32 %p0, %r2, 16; @%p0 bra fill; bar.sync 0;\n"
                           "and.b32 %r4, %i, 15; mul.wide.u32 %w2, %r4, 4; add.s64 %w2, %w2, %w0;\n"
                           "ld.u32 %r5, [%w2]; isspacep.local %p1, %w2; selp.b32 %r6, 1, 0, %p1;\n"
                           "add.s32 %r5, %r5, %r6; st.global.u32 [%own], %r5;"),
               kLine, 300, 0);
}

// Rows that are not multiples of a slice, and planes.
TEST(VectorLanes, BlocksOfAllShapesMatchThreads) {
  const std::string text = kernel_text(
      "",
      "mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y;\n"
      "mad.lo.s32 %r6, %r3, %r5, %r2; mad.lo.s32 %r6, %r6, %r4, %x; mov.u32 %r7, %ctaid.x;\n"
      "mov.u32 %r8, %ntid.z; mul.lo.s32 %r9, %r4, %r5; mul.lo.s32 %r9, %r9, %r8;\n"
      "mad.lo.s32 %r6, %r7, %r9, %r6; mul.wide.s32 %w0, %r6, 4; add.s64 %w0, %w0, %out;\n"
      "mov.u32 %r10, %laneid; mad.lo.s32 %r11, %r2, 100, %r10; mad.lo.s32 %r11, %r3, 10000, %r11;\n"
      "mov.u32 %r12, %warpid; mad.lo.s32 %r11, %r12, 7919, %r11; st.global.u32 [%w0], %r11;");
  for (const Extent& block : {Extent{16, 16, 1}, Extent{5, 7, 3}, Extent{20, 3, 2},
                              Extent{1, 64, 1}, Extent{33, 2, 2}, Extent{8, 8, 8}}) {
    expect_equal(text, {{2, 1, 1}, block}, 2 * block.count(), 0);
  }
}

TEST(VectorLanes, FloatResultsMatchThreadsExactly) {
  expect_equal(
      kernel_text(
          "",
          "ld.global.f32 %f0, [%own]; mov.u32 %r2, 0; mov.b32 %f1, 0f3f800000;\n"
          "loop: fma.rn.f32 %f1, %f1, %f0, %f1; mul.f32 %f2, %f1, %f0; add.f32 %f1, %f1, %f2;\n"
          "min.f32 %f1, %f1, 0f7e000000; max.f32 %f1, %f1, 0ffe000000;\n"
          "div.rn.f32 %f0, %f0, 0f40490fdb; sqrt.rn.f32 %f3, %f1; ex2.approx.f32 %f4, %f0;\n"
          "add.rm.f32 %f1, %f1, %f4; add.s32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, 9; @%p0 bra loop;\n"
          "st.global.f32 [%own], %f1; st.global.f32 [%own+2000], %f3;"),
      kLine, 1000, 0);
}

}  // namespace
}  // namespace gpurun::emulated
