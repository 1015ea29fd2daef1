// Converged lanes without .sync: activemask returns the lanes that are converged. Converged lanes
// make volatile accesses of shared memory one instruction after the other.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "kernel_harness.h"

namespace gpurun::emulated {
namespace {

using U32 = std::uint32_t;

// A kernel in which thread %t stores %r0 in word %t of its output. activemask may use %m. %r<16>,
// %w<8> and %p<4> are free.
std::string kernel(const std::string& body, const std::string& functions = "") {
  return ".version 8.7\n.target sm_90\n.address_size 64\n" + functions +
         ".entry k(.param .u64 in, .param .u64 out) {\n"
         ".reg .b32 %t, %m, %r<16>; .reg .b64 %out, %wide, %w<8>; .reg .pred %p<4>;\n"
         ".shared .align 16 .b8 s[1024];\n"
         "ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %r0, 0;\n" +
         body +
         "\nmul.wide.u32 %wide, %t, 4; add.u64 %out, %out, %wide; st.global.u32 [%out], %r0;\n"
         "ret;\n}\n";
}

constexpr char kAddMask[] = "activemask.b32 %m; mad.lo.u32 %r0, %r0, 31, %m;\n";

template <class Expected>
void expect(const std::string& text, unsigned threads, Expected expected) {
  std::vector<U32> out(threads, 0xdeadbeef);
  const U32 in = 0;
  const Status status = run_grid(text, {1, threads}, &in, out.data());
  ASSERT_TRUE(status.ok()) << status.to_string() << "\n" << text;
  for (unsigned t = 0; t < threads; ++t) EXPECT_EQ(out[t], expected(t)) << "thread " << t;
}

// ---- activemask

TEST(ActiveMask, SeparatesLoopIterations) {
  expect(kernel("shr.u32 %r1, %t, 3; mov.u32 %r2, 0;\n"
                "loop: setp.ne.u32 %p0, %r1, %r2; @%p0 bra next; activemask.b32 %r0;\n"
                "next: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 4; @%p1 bra loop;"),
         32, [](unsigned t) { return 0xffu << (t / 8 * 8); });
}

// Odd lanes reach the place only in the second iteration, together with the even ones.
TEST(ActiveMask, IncludesLanesThatJoinInLaterIteration) {
  expect(kernel("and.b32 %r1, %t, 1; mov.u32 %r2, 0;\n"
                "loop: setp.gt.u32 %p0, %r1, %r2; @%p0 bra next;\n" +
                std::string(kAddMask) +
                "next: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 2; @%p1 bra loop;"),
         32, [](unsigned t) { return (t % 2 == 0 ? 0x55555555u * 31 : 0) + ~0u; });
}

TEST(ActiveMask, IncludesAllLanesAfterLoopsOfDifferentLength) {
  // for (i = 0; i < 3; ++i) { for (j = 0; j <= t % 3; ++j) add; add; }
  const std::string body =
      std::string("rem.u32 %r1, %t, 3; mov.u32 %r2, 0;\n") + "outer: mov.u32 %r3, 0;\n" +
      "inner: " + kAddMask + "add.u32 %r3, %r3, 1; setp.le.u32 %p0, %r3, %r1; @%p0 bra inner;\n" +
      kAddMask + "add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 3; @%p1 bra outer;";
  expect(kernel(body), 32, [](unsigned t) {
    U32 sum = 0;
    for (unsigned i = 0; i < 3; ++i) {
      for (unsigned j = 0; j <= t % 3; ++j) {
        U32 mask = 0;
        for (unsigned lane = 0; lane < 32; ++lane) mask |= lane % 3 >= j ? 1u << lane : 0;
        sum = sum * 31 + mask;
      }
      sum = sum * 31 + ~0u;
    }
    return sum;
  });
}

// Every other lane enters the loop in its middle.
TEST(ActiveMask, SeparatesIterationsOfLoopWithTwoEntries) {
  expect(kernel("and.b32 %r1, %t, 1; setp.eq.u32 %p0, %r1, 1; mov.u32 %r2, 0; @%p0 bra middle;\n"
                "top: add.u32 %r2, %r2, 1;\n"
                "middle: shr.u32 %r3, %t, 4; setp.ne.u32 %p1, %r3, %r2; @%p1 bra next;\n"
                "activemask.b32 %r0;\n"
                "next: setp.lt.u32 %p2, %r2, 3; @%p2 bra top;"),
         32, [](unsigned t) { return t >= 16      ? 0xffff0000u
                                     : t % 2 == 1 ? 0xaaaau
                                                  : 0; });
}

// The lanes of each half call it in a different iteration. Each leaves its loop after two turns.
constexpr char kLoopingFunction[] = R"(
.func (.param .b32 result) looping() {
  .reg .b32 %m, %r<4>; .reg .pred %p;
  mov.u32 %r0, 0; mov.u32 %r1, 0;
again:
  activemask.b32 %m; mad.lo.u32 %r0, %r0, 31, %m;
  add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 2; @%p bra again;
  st.param.b32 [result], %r0;
  ret;
}
)";
std::string calling_loop(const std::string& call) {
  return "shr.u32 %r1, %t, 4; mov.u32 %r2, 0;\n"
         "loop: setp.ne.u32 %p0, %r1, %r2; @%p0 bra next;\n"
         "{ .param .b32 q; " +
         call +
         " ld.param.b32 %r0, [q]; }\n"
         "next: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 2; @%p1 bra loop;";
}
U32 half_twice(unsigned t) { return t < 16 ? 0xffffu * 32 : 0xffff0000u * 32; }

TEST(ActiveMask, SeparatesCallsFromDifferentIterations) {
  expect(kernel(calling_loop("call.uni (q), looping, ();"), kLoopingFunction), 32, half_twice);
}

TEST(ActiveMask, SeparatesCallsThroughPointers) {
  expect(kernel("mov.u64 %w0, looping;\n" +
                    calling_loop("proto: .callprototype (.param .b32 _) _ ();\n"
                                 "call (q), %w0, (), proto;"),
                kLoopingFunction),
         32, half_twice);
}

TEST(ActiveMask, SeparatesRecursionLevels) {
  // deep(n): add; if (n != 0) deep(n - 1); add. The sum is kept in shared memory.
  const std::string deep = R"(
.func (.param .b32 result) deep(.param .b32 sum, .param .b32 n) {
  .reg .b32 %m, %r<4>; .reg .pred %p;
  ld.param.b32 %r0, [sum]; ld.param.b32 %r1, [n];
  activemask.b32 %m; mad.lo.u32 %r0, %r0, 31, %m;
  setp.eq.u32 %p, %r1, 0; @%p bra flat;
  sub.u32 %r1, %r1, 1;
  { .param .b32 a; .param .b32 b; .param .b32 q; st.param.b32 [a], %r0; st.param.b32 [b], %r1;
    call.uni (q), deep, (a, b); ld.param.b32 %r0, [q]; }
flat:
  activemask.b32 %m; mad.lo.u32 %r0, %r0, 31, %m;
  st.param.b32 [result], %r0;
  ret;
}
)";
  expect(kernel("and.b32 %r1, %t, 3;\n"
                "{ .param .b32 a; .param .b32 b; .param .b32 q; st.param.b32 [a], %r0; "
                "st.param.b32 [b], %r1; call.uni (q), deep, (a, b); ld.param.b32 %r0, [q]; }",
                deep),
         32, [](unsigned t) {
           const auto at_least = [](unsigned n) {
             U32 mask = 0;
             for (unsigned lane = 0; lane < 32; ++lane) mask |= lane % 4 >= n ? 1u << lane : 0;
             return mask;
           };
           U32 sum = 0;
           for (unsigned n = 0; n <= t % 4; ++n) sum = sum * 31 + at_least(n);
           for (unsigned n = t % 4 + 1; n-- > 0;) sum = sum * 31 + at_least(n);
           return sum;
         });
}

// As a program counts with one atomic for each group: matches, votes and shuffles use the mask.
TEST(ActiveMask, ServesAsMaskForWarpOperations) {
  expect(kernel("shr.u32 %r1, %t, 3; mov.u32 %r2, 0;\n"
                "loop: setp.ne.u32 %p0, %r1, %r2; @%p0 bra next; activemask.b32 %m;\n"
                "match.any.sync.b32 %r3, %r2, %m; vote.sync.ballot.b32 %r4, 1, %m;\n"
                "shl.b32 %r5, %r2, 3; shfl.sync.idx.b32 %r6, %t, %r5, 31, %m;\n"
                "xor.b32 %r3, %r3, %m; xor.b32 %r4, %r4, %m; or.b32 %r3, %r3, %r4;\n"
                "add.u32 %r0, %r6, %r3;\n"
                "next: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 4; @%p1 bra loop;"),
         64, [](unsigned t) { return t < 32 ? t / 8 * 8 : 0; });
}

// ---- Volatile accesses of shared memory

// %r8 is the address of this thread's word in shared memory. `access` is the text between ld or st
// and the type. `base` is the register with the address.
std::string own_word() {
  return "mov.u32 %r8, s; shl.b32 %r9, %t, 2; add.u32 %r8, %r8, %r9; cvt.u64.u32 %w1, %r8; "
         "cvta.shared.u64 %w1, %w1;\n";
}

struct AccessForm {
  const char* access;
  const char* base;
};
class VolatileSharedAccess : public testing::TestWithParam<AccessForm> {};
INSTANTIATE_TEST_SUITE_P(Forms, VolatileSharedAccess,
                         testing::Values(AccessForm{"volatile.shared", "%r8"},
                                         AccessForm{"volatile", "%w1"},
                                         AccessForm{"relaxed.cta.shared", "%r8"},
                                         AccessForm{"relaxed.cta", "%w1"}));

TEST_P(VolatileSharedAccess, WarpSumWithoutSyncwarpIsCorrect) {
  const std::string access = std::string(".") + GetParam().access + ".u32 ";
  const std::string base = std::string("[") + GetParam().base;
  std::string body = own_word() + "st" + access + base + "], %t; bar.sync 0;\n" +
                     "setp.ge.u32 %p0, %t, 32; @%p0 bra done;\n";
  for (const unsigned by : {32, 16, 8, 4, 2, 1}) {
    body += "ld" + access + "%r1, " + base + "+" + std::to_string(4 * by) + "]; ld" + access +
            "%r2, " + base + "]; add.u32 %r2, %r2, %r1; st" + access + base + "], %r2;\n";
  }
  body += "ld" + access + "%r0, " + base + "];\ndone:";
  // The words after the first 32 do not change, so each thread's sum is known.
  expect(kernel(body), 64, [](unsigned t) {
    std::array<U32, 64> words;
    for (U32 i = 0; i < 64; ++i) words[i] = i;
    for (const unsigned by : {32u, 16u, 8u, 4u, 2u, 1u}) {
      std::array<U32, 64> before = words;
      for (U32 i = 0; i < 32; ++i) words[i] = before[i] + before[i + by];
    }
    return t < 32 ? words[t] : 0;
  });
}

TEST_P(VolatileSharedAccess, LanesReadNeighbourWordInLoopAndBranch) {
  const std::string access = std::string(".") + GetParam().access + ".u32 ";
  const std::string base = std::string("[") + GetParam().base;
  // Each of a warp's first 24 lanes passes its word to the right, five times in a ring. The others
  // do so once, and only when the first ones store.
  expect(kernel(own_word() + "mov.u32 %r0, %t; mov.u32 %r2, 0; and.b32 %r3, %t, 31;\n" +
                "setp.ge.u32 %p0, %r3, 24; @%p0 bra met;\n" + "setp.eq.u32 %p1, %r3, 0;\n" +
                "loop: st" + access + base + "], %r0;\n" + "@%p1 ld" + access + "%r0, " + base +
                "+92]; @!%p1 ld" + access + "%r0, " + base + "+-4];\n" +
                "add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 5; @%p2 bra loop;\n" + "met:"),
         64, [](unsigned t) { return t % 32 < 24 ? t / 32 * 32 + (t % 32 + 24 - 5) % 24 : t; });
}

TEST(VolatileSharedAccess, VectorAccessInsideFunctionRunsInStep) {
  const std::string swap = R"(
.func (.param .b32 result) swapped(.param .b32 place, .param .b32 other, .param .b32 value) {
  .reg .b32 %r<6>;
  ld.param.b32 %r0, [place]; ld.param.b32 %r1, [other]; ld.param.b32 %r2, [value];
  add.u32 %r3, %r2, 100;
  st.volatile.shared.v2.u32 [%r0], {%r2, %r3};
  ld.volatile.shared.v2.u32 {%r4, %r5}, [%r1];
  add.u32 %r4, %r4, %r5; st.param.b32 [result], %r4;
  ret;
}
)";
  expect(kernel("mov.u32 %r8, s; mad.lo.u32 %r9, %t, 8, %r8; xor.b32 %r2, %t, 31; "
                "mad.lo.u32 %r8, %r2, 8, %r8;\n"
                "{ .param .b32 a; .param .b32 b; .param .b32 c; .param .b32 q; st.param.b32 [a], "
                "%r9; st.param.b32 [b], %r8; st.param.b32 [c], %t; call.uni (q), swapped, (a, b, "
                "c); ld.param.b32 %r0, [q]; }",
                swap),
         64, [](unsigned t) { return 2 * (t ^ 31) + 100; });
}

// A waiting thread must let others run: a lane of the same warp on the other side of a branch or
// behind the loop, another warp, and lanes that poll global memory.
TEST(VolatileSharedAccess, PollingThreadYieldsToOtherThreads) {
  const std::string flag = "mov.u32 %r8, s; ";
  expect(kernel(flag +
                "setp.eq.u32 %p0, %t, 0; @%p0 st.volatile.shared.u32 [%r8], 0; bar.sync 0;\n"
                "setp.eq.u32 %p1, %t, 7; @%p1 bra set;\n"
                "wait: ld.volatile.shared.u32 %r0, [%r8]; setp.eq.u32 %p2, %r0, 0; @%p2 bra wait;\n"
                "bra met;\n"
                "set: st.volatile.shared.u32 [%r8], 9; mov.u32 %r0, 9;\n"
                "met:"),
         64, [](unsigned) { return 9u; });
  // A chain: thread t waits until it is its turn, and gives the turn to the next.
  expect(
      kernel(flag + "setp.eq.u32 %p0, %t, 0; @%p0 st.volatile.shared.u32 [%r8], 0; bar.sync 0;\n"
                    "wait: ld.volatile.shared.u32 %r0, [%r8]; setp.ne.u32 %p2, %r0, %t; @%p2 bra "
                    "wait;\n"
                    "add.u32 %r1, %t, 1; st.volatile.shared.u32 [%r8], %r1;"),
      40, [](unsigned t) { return t; });
}

}  // namespace
}  // namespace gpurun::emulated
