// Barriers, fences, clusters of one block and waits, as translated code uses them.
#include <gtest/gtest.h>

#include "kernel_harness.h"

namespace gpurun::emulated {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using Pair = std::pair<U64, U64>;
using Cases = std::vector<ThreadCase>;

constexpr unsigned kThreads = 96;

std::vector<Inputs> inputs() {
  std::vector<Inputs> all;
  for (U64 i = 0; i < kThreads; ++i) all.push_back({i * 1234567 + 1, i, 0});
  return all;
}

// Each thread stores a value, waits as `wait` says, and reads the value of the thread 32 further
// on.
ThreadCase exchange(const std::string& wait) {
  return {"st.shared.b32 [%own], %a32; " + wait +
              " add.u32 %t0, %i, 32; rem.u32 %t0, %t0, 96; sub.s32 %t0, %t0, %i;\n"
              "mad.lo.s32 %t0, %t0, 16, %own; ld.shared.b32 %d32, [%t0];",
          32, [](unsigned thread) {
            return Pair{U64{(thread + 32) % kThreads} * 1234567 + 1, 0};
          }};
}

TEST(BarrierInstructions, BarriersMakeEarlierWritesVisible) {
  Cases cases;
  for (const std::string name : {"bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync",
                                 "barrier.sync.aligned", "barrier.cta.sync.aligned"}) {
    cases.push_back(exchange(name + " 0;"));
    cases.push_back(exchange(name + " 5, 96;"));
    cases.push_back(exchange("mov.u32 %t1, 3; mov.u32 %t2, 96; " + name + " %t1, %t2;"));
  }
  cases.push_back(exchange("barrier.cluster.arrive; barrier.cluster.wait;"));
  cases.push_back(exchange("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"));
  cases.push_back(
      exchange("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"));
  check_threads(cases, inputs());
}

// Warps 1 and 2 produce and go on. Warp 0 waits for them.
TEST(BarrierInstructions, ArriveCountsWithoutWaiting) {
  Cases cases;
  for (const std::string name : {"bar", "bar.cta", "barrier", "barrier.cta"}) {
    cases.push_back(
        {"setp.lt.u32 %p, %i, 32; @!%p atom.shared.add.u32 %t0, [%all], %a32;\n"
         "@!%p " +
             name + ".arrive 1, 96;\n@%p " + name + ".sync 1, 96;\n@%p ld.shared.b32 %d32, [%all];",
         32, [](unsigned thread) {
           U64 sum = 0;
           for (U64 i = 32; i < kThreads; ++i) sum += i * 1234567 + 1;
           return Pair{thread < 32 ? sum : 0, 0};
         }});
  }
  check_threads(cases, inputs());
}

TEST(BarrierInstructions, ReductionsCountAndCombinePredicates) {
  Cases cases;
  for (const std::string name : {"bar", "bar.cta", "barrier", "barrier.cta"}) {
    const std::string test = "and.b32 %t0, %i, 3; setp.eq.u32 %p, %t0, 1;";
    cases.push_back(
        {test + name + ".red.popc.u32 %d32, 0, %p;" + name + ".red.popc.u32 %e32, 2, 96, !%p;", 32,
         [](unsigned) {
           return Pair{24, 72};
         }});
    cases.push_back({test + name + ".red.or.pred %q, 0, %p; selp.b32 %d32, 1, 0, %q;" + name +
                         ".red.and.pred %q, 1, 96, %p; selp.b32 %e32, 1, 0, %q;",
                     32, [](unsigned) {
                       return Pair{1, 0};
                     }});
    cases.push_back({"setp.lt.u32 %p, %i, 96;" + name +
                         ".red.and.pred %q, 0, %p; selp.b32 %d32, 1, 0, %q;" + name +
                         ".red.or.pred %q, 0, !%p; selp.b32 %e32, 1, 0, %q;",
                     32, [](unsigned) {
                       return Pair{1, 0};
                     }});
  }
  check_threads(cases, inputs());
}

// A fence between two stores: another warp that sees the second also sees the first. (The host
// keeps the order of stores anyway. The test shows that every form is accepted and does no harm.)
TEST(BarrierInstructions, FencesOrderStores) {
  Cases cases;
  for (const std::string fence :
       {"membar.cta", "membar.gl", "membar.sys", "fence.sc.gpu", "fence.acq_rel.cta",
        "fence.acquire.cluster", "fence.release.cluster", "fence.sc.sys", "fence.proxy.alias",
        "fence.proxy.async", "fence.proxy.async.global", "fence.proxy.async.shared::cta",
        "membar.proxy.alias", "fence.mbarrier_init.release.cluster"}) {
    cases.push_back(
        {"and.b32 %t0, %i, 31; setp.eq.u32 %p, %t0, 0; setp.eq.and.u32 %q, %i, 32, %p;\n"
         "@%q st.shared.b32 [%all], 7;\n" +
             fence +
             ";\n@%q st.volatile.shared.b32 [%all+4], 1;\n"
             "{ .reg .pred %w; $wait:\n"
             "ld.volatile.shared.b32 %t1, [%all+4]; setp.eq.u32 %w, %t1, 0;\n"
             "@%w bra $wait; }\n" +
             fence + ";\nld.shared.b32 %d32, [%all];",
         32, [](unsigned) {
           return Pair{7, 0};
         }});
  }
  check_threads(cases, inputs());
}

TEST(BarrierInstructions, SleepAndClusterInstructionsMatchIsa) {
  Cases cases;
  cases.push_back(
      {"nanosleep.u32 20; nanosleep.u32 %i; griddepcontrol.wait;\n"
       "griddepcontrol.launch_dependents; mov.u32 %d32, %i;",
       32, [](unsigned thread) {
         return Pair{thread, 0};
       }});
  // A block's own shared memory is also the cluster's.
  cases.push_back(
      {"st.shared::cta.b32 [%own], %a32; mapa.shared::cluster.u32 %t0, %own, 0;\n"
       "ld.shared::cluster.b32 %d32, [%t0]; getctarank.shared::cluster.u32 %e32, %t0;",
       32, [](unsigned thread) {
         return Pair{U64{thread} * 1234567 + 1, 0};
       }});
  cases.push_back(
      {"st.shared.b32 [%own], %a32; cvt.u64.u32 %u0, %own; cvta.shared.u64 %u0, %u0;\n"
       "mapa.u64 %u1, %u0, 0; ld.b32 %d32, [%u1]; getctarank.u64 %e32, %u1;",
       32, [](unsigned thread) {
         return Pair{U64{thread} * 1234567 + 1, 0};
       }});
  cases.push_back(
      {"mov.u32 %t0, %cluster_ctarank; mov.u32 %t1, %cluster_nctarank;\n"
       "mov.u32 %t2, %cluster_ctaid.x; mov.u32 %t3, %cluster_nctaid.x;\n"
       "mad.lo.u32 %d32, %t0, 16, %t1; mad.lo.u32 %e32, %t2, 16, %t3;",
       32, [](unsigned) {
         return Pair{1, 1};
       }});
  cases.push_back({"mov.u32 %d32, %clusterid.x; mov.u32 %e32, %nclusterid.x;", 32, [](unsigned) {
                     return Pair{0, 1};
                   }});
  check_threads(cases, inputs());
}

// Blocks that wait for each other through memory make progress, because their polling yields.
TEST(BarrierInstructions, PollingBlocksYield) {
  for (const std::string load :
       {"ld.volatile.global.u32 %n, [%out];", "ld.relaxed.gpu.global.u32 %n, [%out];",
        "ld.acquire.sys.global.u32 %n, [%out];", "atom.global.cas.b32 %n, [%out], 0, 0;"}) {
    const std::string text =
        ".version 9.0\n.target sm_120\n.address_size 64\n"
        ".entry k(.param .u64 in, .param .u64 out) {\n.reg .b64 %out; .reg .b32 %n;\n"
        ".reg .pred %p;\nld.param.u64 %out, [out]; red.global.add.u32 [%out], 1;\n$wait: " +
        load + "\nsetp.lt.u32 %p, %n, 512;\n@%p bra $wait;\nret;\n}\n";
    U32 out = 0;
    const Status status = run_grid(text, {16, 32}, nullptr, &out);
    ASSERT_TRUE(status.ok()) << load << status.to_string();
    EXPECT_EQ(out, 512u) << load;
  }
}

TEST(BarrierInstructions, IncompleteBarrierReturnsLaunchTimeout) {
  const std::string text =
      ".version 9.0\n.target sm_120\n.address_size 64\n.entry k() {\n.reg .pred %p; .reg .b32 %t;\n"
      "mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 32;\n@%p bar.sync 1, 64;\n@!%p bar.sync 2, 64;\n"
      "ret;\n}\n";
  const Status status = run_grid(text, {1, 64}, nullptr, nullptr);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_NE(status.message().find("702"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace gpurun::emulated
