// Asynchronous copies, mbarriers and cache hints: translated as the PTX ISA says.
#include <gtest/gtest.h>

#include "kernel_harness.h"

namespace gpurun::emulated {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using Pair = std::pair<U64, U64>;
using Cases = std::vector<ThreadCase>;

constexpr unsigned kThreads = 64;

std::vector<Inputs> inputs() {
  std::vector<Inputs> all;
  for (U64 i = 0; i < kThreads; ++i) {
    all.push_back({0x1111111100000000ull + i, 0xabcdef0000000000ull + i * 3, i % 20});
  }
  return all;
}

// The cell becomes {a, b}. The thread's own shared memory becomes all ones.
const char kFill[] =
    "st.v2.b64 [%cell], {%a64, %b64}; mov.b64 %u0, -1; st.shared.v2.b64 [%own], {%u0, %u0};\n";
const char kRead[] = "ld.shared.v2.b64 {%d64, %e64}, [%own];";

Pair copied(unsigned thread, unsigned bytes, unsigned present) {
  const U64 source[2] = {0x1111111100000000ull + thread, 0xabcdef0000000000ull + thread * 3};
  U64 out[2] = {~0ull, ~0ull};
  for (unsigned i = 0; i < bytes; ++i) {
    U64& word = out[i / 8];
    const U64 byte = i < present ? source[i / 8] >> (i % 8 * 8) & 255 : 0;
    word = (word & ~(U64{255} << (i % 8 * 8))) | byte << (i % 8 * 8);
  }
  return {out[0], out[1]};
}

TEST(AsyncInstructions, CopiesZeroFillMissingBytes) {
  Cases cases;
  for (const std::string wait : {"cp.async.wait_all;",
                                 "cp.async.commit_group; "
                                 "cp.async.wait_group 0;"}) {
    for (unsigned bytes : {4u, 8u, 16u}) {
      const std::string name = std::string("cp.async.") + (bytes == 16 ? "cg" : "ca") +
                               ".shared.global.L2::128B [%own], [%cell], " + std::to_string(bytes);
      const auto full = [=](unsigned thread) { return copied(thread, bytes, bytes); };
      cases.push_back({kFill + name + "; " + wait + kRead, 64, full});
      cases.push_back(
          {kFill + name + ", " + std::to_string(bytes) + "; " + wait + kRead, 64, full});
      cases.push_back({kFill + name + ", %c32; " + wait + kRead, 64, [=](unsigned thread) {
                         return copied(thread, bytes, std::min(bytes, thread % 20));
                       }});
      cases.push_back(
          {"setp.gt.u32 %p, %i, 9;" + (kFill + name) + ", %p; " + wait + kRead, 64,
           [=](unsigned thread) { return copied(thread, bytes, thread > 9 ? 0 : bytes); }});
    }
  }
  cases.push_back({std::string("createpolicy.fractional.L2::evict_first.b64 %u1, 1.0;\n") + kFill +
                       "cp.async.ca.shared::cta.global.L2::cache_hint [%own], [%cell], 16, 12, "
                       "%u1; cp.async.wait_all;" +
                       kRead,
                   64, [](unsigned thread) { return copied(thread, 16, 12); }});
  check_threads(cases, inputs());
}

// An address that is not read may be invalid.
TEST(AsyncInstructions, EmptyCopyDoesNotAccessSource) {
  Cases cases;
  cases.push_back({std::string(kFill) +
                       "mov.b64 %u0, 8; cp.async.ca.shared.global [%own], [%u0], 8, 0;\n"
                       "setp.eq.b32 %p, 0, 0; cp.async.ca.shared.global [%own+8], [%u0], 8, %p;" +
                       kRead,
                   64, [](unsigned) {
                     return Pair{0, 0};
                   }});
  check_threads(cases, inputs());
}

std::string init(const std::string& space, const std::string& count) {
  return "setp.eq.u32 %p, %i, 0; cvt.u64.u32 %u0, %all; cvta.shared.u64 %u0, %u0;\n@%p "
         "mbarrier.init" +
         space + ".b64 [" + (space.empty() ? "%u0" : "%all") + "], " + count + "; bar.sync 0;\n";
}

// Every thread stores a value, arrives, waits for the phase and reads its neighbour's value, three
// times.
TEST(AsyncInstructions, MbarrierBlocksUntilAllThreadsArrive) {
  Cases cases;
  for (const std::string space : {"", ".shared"}) {
    const std::string object = space.empty() ? "[%u0]" : "[%all]";
    for (const std::string order : {"", ".relaxed.cta"}) {
      for (const std::string wait : {"test_wait", "try_wait"}) {
        for (const bool parity : {false, true}) {
          std::string text = init(space, "64") + "mov.b32 %d32, 0;\n";
          for (int phase = 0; phase < 3; ++phase) {
            const std::string arrive_order = order.empty() && phase == 1 ? ".release.cta" : order;
            const std::string wait_order = order.empty() && phase == 1 ? ".acquire.cta" : order;
            const std::string arrive = phase == 2 && order.empty() ? "arrive.noComplete" : "arrive";
            const std::string label = "$w" + std::to_string(cases.size()) + std::to_string(phase);
            text += "add.u32 %t0, %a32, " + std::to_string(phase) +
                    "; st.shared.b32 [%own], %t0;\n" + "mbarrier." + arrive + arrive_order + space +
                    ".b64 %u1, " + object + (phase == 0 ? "" : ", 1") + ";\n" + label +
                    ": mbarrier." + wait + (parity ? ".parity" : "") + wait_order + space +
                    ".b64 %q, " + object + ", " +
                    (parity ? std::to_string(phase & 1) : std::string("%u1")) +
                    (wait == "try_wait" && phase == 2 ? ", 1000" : "") + ";\n@!%q bra " + label +
                    ";\nxor.b32 %t1, %i, 63; sub.s32 %t1, %t1, %i; mad.lo.s32 %t1, %t1, 16, %own;\n"
                    "ld.shared.b32 %t0, [%t1]; add.u32 %d32, %d32, %t0; bar.sync 0;\n";
          }
          text += "@%p mbarrier.inval" + space + ".b64 " + object + ";";
          cases.push_back({text, 32, [](unsigned thread) {
                             return Pair{3 * U64{63 - thread} + 3, 0};
                           }});
        }
      }
    }
  }
  check_threads(cases, inputs());
}

// Thread 0 reads one barrier that only it uses: its state and the number of missing arrivals.
std::string alone(const std::string& body) {
  return "setp.ne.u32 %q, %i, 0; @%q bra $end" + std::to_string(std::hash<std::string>()(body)) +
         ";\n" + body + "\n$end" + std::to_string(std::hash<std::string>()(body)) + ":\n";
}
ThreadCase alone_case(const std::string& body, U64 d, U64 e) {
  return {alone(body), 32, [=](unsigned thread) { return thread == 0 ? Pair{d, e} : Pair{0, 0}; }};
}

TEST(AsyncInstructions, MbarrierCountsArrivalsDropsAndBytes) {
  Cases cases;
  const std::string count = "mbarrier.pending_count.b64 ";
  const std::string init = "mbarrier.init.shared.b64 [%all], 5;\n";
  const std::string test =
      "mbarrier.test_wait.shared.b64 %p, [%all], %u1; selp.b32 %e32, 1, 0, %p;";
  cases.push_back(alone_case(init + "mbarrier.arrive.shared.b64 %u1, [%all], 3;\n" +
                                 "mbarrier.arrive.shared.b64 %u2, [%all];\n" + count +
                                 "%d32, %u2;\n" + test,
                             2, 0));
  // Two arrivals drop out, so the next phase needs three.
  cases.push_back(alone_case(init + "mbarrier.arrive_drop.shared.b64 %u1, [%all], 2;\n" +
                                 "mbarrier.arrive.shared.b64 _, [%all], 3;\n" +
                                 "mbarrier.arrive.shared.b64 %u2, [%all];\n" + count +
                                 "%d32, %u2;\n" + test,
                             3, 1));
  // Pending bytes keep the phase open although all have arrived.
  for (const std::string order : {"", ".relaxed.cta"}) {
    for (const std::string space : {"", ".shared"}) {
      const std::string object = space.empty() ? "[%u0]" : "[%all]";
      const std::string address = "cvt.u64.u32 %u0, %all; cvta.shared.u64 %u0, %u0;\n";
      const std::string tail = order + space + ".b64 " + object;
      const std::string bytes = "mbarrier.expect_tx" + tail +
                                ", 32;\nmbarrier.arrive.shared.b64 "
                                "%u1, [%all], 5;\nmbarrier.complete_tx" +
                                tail + ", 16;\n";
      cases.push_back(alone_case(address + init + bytes + test, 0, 0));
      cases.push_back(alone_case(
          address + init + bytes + "mbarrier.complete_tx" + tail + ", 16;\n" + test, 0, 1));
    }
  }
  for (const std::string name : {"arrive", "arrive_drop"}) {
    for (const std::string order : {"", ".release.cta", ".relaxed.cta"}) {
      for (const std::string space : {"", ".shared"}) {
        const std::string object = space.empty() ? "[%u0]" : "[%all]";
        const std::string start =
            "cvt.u64.u32 %u0, %all; cvta.shared.u64 %u0, %u0;\n"
            "mbarrier.init.shared.b64 [%all], 3;\n";
        const std::string tail = order + space + ".b64 ";
        // .noComplete always has .release semantics.
        const std::string complete_tail = (order == ".relaxed.cta" ? "" : order) + space + ".b64 ";
        cases.push_back(alone_case(
            start + "mbarrier." + name + tail + "%u1, " + object + ";\n" + "mbarrier." + name +
                ".noComplete" + complete_tail + "%u2, " + object + ", 1;\n" + "mbarrier." + name +
                ".expect_tx" + tail + "%u3, " + object + ", 16;\n" + count + "%d32, %u3;\n" +
                "mbarrier.complete_tx.shared.b64 [%all], 16;\n" + test,
            1, 1));
      }
    }
  }
  // The arrival that copies make. With .noinc it counts as one of the expected arrivals. Otherwise
  // it adds its own.
  for (const std::string space : {"", ".shared"}) {
    const std::string object = space.empty() ? "[%u0]" : "[%all]";
    cases.push_back(alone_case(
        "cvt.u64.u32 %u0, %all; cvta.shared.u64 %u0, %u0; mbarrier.init.shared.b64 [%all], 2;\n"
        "cp.async.mbarrier.arrive" +
            space + ".b64 " + object + ";\n" + "cp.async.mbarrier.arrive.noinc" + space + ".b64 " +
            object + ";\n" + "mbarrier.arrive.shared.b64 %u1, [%all];\n" + count + "%d32, %u1;\n" +
            test,
        1, 1));
  }
  check_threads(cases, inputs());
}

TEST(AsyncInstructions, BulkCopiesMoveAndCompleteBytes) {
  Cases cases;
  const std::string start = std::string(kFill) +
                            "mbarrier.init.shared.b64 [%all], 1;\n"
                            "mbarrier.arrive.expect_tx.shared.b64 %u1, [%all], 16;\n";
  const std::string end =
      "mbarrier.test_wait.shared.b64 %p, [%all], %u1; selp.b64 %e64, 1, 0, %p;\n"
      "ld.shared.b64 %d64, [%own];\n";
  const auto one = [](const std::string& body, U64 d, U64 e) {
    return ThreadCase{alone(body), 64, [=](unsigned thread) {
                        return thread == 0 ? Pair{d, e} : Pair{0, 0};
                      }};
  };
  for (const std::string to : {"shared::cluster", "shared::cta"}) {
    cases.push_back(one(start + "cp.async.bulk." + to +
                            ".global.mbarrier::complete_tx::bytes [%own], [%cell], 16, [%all];\n" +
                            end,
                        0x1111111100000000ull, 1));
  }
  cases.push_back(one(start +
                          "st.shared.b64 [%own+16], %b64; st.shared.b64 [%own+24], %a64;\n"
                          "add.u32 %t0, %own, 16; cp.async.bulk.shared::cluster.shared::cta"
                          ".mbarrier::complete_tx::bytes [%own], [%t0], 16, [%all];\n" +
                          end,
                      0xabcdef0000000000ull, 1));
  cases.push_back(one(std::string(kFill) +
                          "st.shared.v2.b64 [%own], {%b64, %a64};\n"
                          "cp.async.bulk.prefetch.L2.global [%cell], 16;\n"
                          "cp.async.bulk.global.shared::cta.bulk_group [%cell], [%own], 16;\n"
                          "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;\n"
                          "cp.async.bulk.wait_group 0; ld.v2.b64 {%d64, %e64}, [%cell];",
                      0xabcdef0000000000ull, 0x1111111100000000ull));
  check_threads(cases, inputs());
}

TEST(AsyncInstructions, CacheHintsDoNotChangeData) {
  Cases cases;
  cases.push_back({std::string(kFill) +
                       "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %u1, 0.5;\n"
                       "createpolicy.range.global.L2::evict_last.b64 %u2, [%cell], 100, 200;\n"
                       "createpolicy.range.L2::evict_last.b64 %u2, [%cell], 100, 200;\n"
                       "createpolicy.cvt.L2.b64 %u3, 0x12;\n"
                       "applypriority.global.L2::evict_normal [%cell], 128;\n"
                       "applypriority.L2::evict_normal [%cell], 128;\n"
                       "ld.global.L2::cache_hint.v2.b64 {%d64, %e64}, [%cell], %u1;\n"
                       "st.global.L2::cache_hint.b64 [%cell], %d64, %u1;\n"
                       "atom.global.add.L2::cache_hint.u64 %d64, [%cell], 1, %u1;",
                   64, [](unsigned thread) { return copied(thread, 16, 16); }});
  // Discarded bytes may be lost. All others must stay.
  cases.push_back(
      {std::string(kFill) +
           "discard.global.L2 [%cell], 128; discard.L2 [%cell], 128; mov.b64 %d64, %a64;",
       64, [](unsigned thread) {
         return Pair{copied(thread, 16, 16).first, 0};
       }});
  check_threads(cases, inputs());
}

}  // namespace
}  // namespace gpurun::emulated
