// Warp operations: they run once for exactly the lanes that arrived, for any order and divergence,
// and with ended lanes.
#include <bit>
#include <condition_variable>
#include <mutex>

#include "tests/unit/emulated/engine/kernels.h"

namespace gpurun::emulated::test {
namespace {

constexpr std::uint32_t kAll = 0xffffffffu;

// out = the sum of the present lanes' inputs, and the mask of present lanes.
void sum_lanes(std::uint32_t present, const WarpSlot* slots) {
  std::uint32_t sum = 0;
  for (std::uint32_t m = present; m != 0; m &= m - 1) sum += slots[std::countr_zero(m)].in[0];
  for (std::uint32_t m = present; m != 0; m &= m - 1) {
    slots[std::countr_zero(m)].out[0] = sum;
    slots[std::countr_zero(m)].out[1] = present;
  }
}

// shfl.idx from the next present lane.
void next_lane(std::uint32_t present, const WarpSlot* slots) {
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    if ((present >> lane & 1) == 0) continue;
    const std::uint32_t from = (lane + 1) % 32;
    slots[lane].out[0] = (present >> from & 1) != 0 ? slots[from].in[0] : slots[lane].in[0];
  }
}

struct Out {
  std::uint32_t* values;
};

std::uint32_t warp_sum(ThreadContext* thread, std::uint32_t mask, std::uint32_t value,
                       std::uint32_t* present = nullptr) {
  std::uint32_t out[2] = {0, 0};
  rt().warp(thread, 1, mask, sum_lanes, &value, out);
  if (present != nullptr) *present = out[1];
  return out[0];
}

std::vector<std::uint32_t> run(KernelFunction kernel, std::uint32_t threads, int code = kGridOk) {
  auto engine = make_engine(1);
  std::vector<std::uint32_t> values(threads);
  const Out p{values.data()};
  const GridResult result = engine->run(launch(kernel, {1, 1, 1}, {threads, 1, 1}, &p));
  EXPECT_EQ(result.code, code) << result.message;
  return values;
}

void whole_kernel(ThreadContext* thread) {
  std::uint32_t value = thread->thread_linear;
  for (int i = 0; i < 100; ++i) {
    std::uint32_t out = 0;
    rt().warp(thread, 2, kAll, next_lane, &value, &out);
    value = out;
  }
  params<Out>(thread).values[thread->thread_linear] = value;
}

TEST(EngineWarp, ShufflesWithinEachWarp) {
  const auto values = run(whole_kernel, 96);
  for (std::uint32_t i = 0; i < 96; ++i) EXPECT_EQ(values[i], i / 32 * 32 + (i + 100) % 32);
}

// The two sides of a branch use different masks, a different number of times.
void divergent_kernel(ThreadContext* thread) {
  const std::uint32_t lane = thread->thread_linear % 32;
  const bool odd = lane % 2 == 1;
  const std::uint32_t mask = odd ? 0xaaaaaaaau : 0x55555555u;
  std::uint32_t sum = 0;
  for (int i = 0; i < (odd ? 7 : 3); ++i) sum = warp_sum(thread, mask, lane);
  rt().warp(thread, 3, kAll, nullptr, nullptr, nullptr);
  params<Out>(thread).values[thread->thread_linear] = sum;
}

TEST(EngineWarp, DivergedBranchesUseSeparateMasks) {
  const auto values = run(divergent_kernel, 64);
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(values[i], i % 2 == 1 ? 256u : 240u);
}

void ended_kernel(ThreadContext* thread) {
  const std::uint32_t lane = thread->thread_linear % 32;
  if (lane >= 20) return;
  std::uint32_t present = 0;
  const std::uint32_t sum = warp_sum(thread, kAll, 1, &present);
  params<Out>(thread).values[thread->thread_linear] = present == 0xfffff ? sum : 0;
}

TEST(EngineWarp, OperationSkipsEndedLanes) {
  const auto values = run(ended_kernel, 32);
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], i < 20 ? 20u : 0u);
}

// The last warp has 5 lanes.
void short_kernel(ThreadContext* thread) {
  params<Out>(thread).values[thread->thread_linear] = warp_sum(thread, kAll, 1);
}

TEST(EngineWarp, OperationSkipsMissingLanesOfPartialWarp) {
  const auto values = run(short_kernel, 37);
  EXPECT_EQ(values[31], 32u);
  EXPECT_EQ(values[36], 5u);
}

// Lanes arrive at the operation from barriers, in a changing order.
void mixed_kernel(ThreadContext* thread) {
  const std::uint32_t t = thread->thread_linear;
  std::uint32_t ok = 1;
  for (std::uint32_t round = 0; round < 20; ++round) {
    if (t % (round + 2) == 0) rt().yield(thread);
    ok &= warp_sum(thread, kAll, t % 32) == 496;
    rt().barrier_sync(thread, 0, 0);
  }
  params<Out>(thread).values[t] = ok;
}

TEST(EngineWarp, BarriersAndYieldsDoNotMixOperations) {
  for (const std::uint32_t value : run(mixed_kernel, 128)) EXPECT_EQ(value, 1u);
}

// Different operations with one mask: invalid in CUDA, but works on its devices.
void careless_kernel(ThreadContext* thread) {
  const std::uint32_t lane = thread->thread_linear;
  std::uint32_t value = lane;
  std::uint32_t out = 99;
  if (lane < 16) {
    rt().warp(thread, 1, kAll, next_lane, &value, &out);
  } else {
    out = warp_sum(thread, kAll, 1);
  }
  params<Out>(thread).values[lane] = out;
}

TEST(EngineWarp, MismatchedOperationsWithOneMaskDoNotHang) {
  const auto values = run(careless_kernel, 32);
  EXPECT_EQ(values[3], 4u);
  EXPECT_EQ(values[20], 16u);
}

// A position without loops, as compiled code creates it.
struct Place {
  explicit Place(std::uint64_t number, const CodePosition* caller = nullptr)
      : head{caller, nullptr, 1}, word(number) {}
  CodePosition head;
  std::uint64_t word;
};

void active_kernel(ThreadContext* thread) {
  const std::uint32_t lane = thread->thread_linear;
  std::uint32_t mask = 0;
  if (lane % 4 == 0) {
    const Place place(10);
    mask = rt().active_mask(thread, &place.head);
    mask = warp_sum(thread, mask, 1) == 8 ? mask : 0;
  } else if (lane % 4 == 1) {
    const Place place(11);
    mask = rt().active_mask(thread, &place.head);
  }
  params<Out>(thread).values[lane] = mask;
}

TEST(EngineWarp, ActiveMaskHoldsConvergedLanes) {
  const auto values = run(active_kernel, 32);
  for (std::uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(values[i], i % 4 == 0 ? 0x11111111u : i % 4 == 1 ? 0x22222222u : 0u);
  }
}

void hang_kernel(ThreadContext* thread) {
  if (thread->thread_linear == 3) {
    rt().barrier_sync(thread, 0, 64);
  } else {
    rt().warp(thread, 1, kAll, nullptr, nullptr, nullptr);
  }
}

TEST(EngineWarp, ReportsDeadlockOfWarpAndBarrier) {
  auto engine = make_engine(1);
  const Out p{nullptr};
  const GridResult result = engine->run(launch(hang_kernel, {1, 1, 1}, {32, 1, 1}, &p));
  EXPECT_EQ(result.code, kGridLaunchTimeout);
  EXPECT_NE(result.message.find("31 wait for lanes of their warp"), std::string::npos)
      << result.message;
}

}  // namespace
}  // namespace gpurun::emulated::test
