// Barriers: all threads, some threads, ended threads, reductions, arrival without wait, and
// clusters. A barrier that cannot complete is reported instead of hanging.
#include <condition_variable>
#include <mutex>

#include "tests/unit/emulated/engine/kernels.h"

namespace gpurun::emulated::test {
namespace {

struct Out {
  std::uint32_t* values;
};

// Each round every thread reads what its neighbour wrote before the barrier.
void rotate_kernel(ThreadContext* thread) {
  auto* shared = reinterpret_cast<std::uint32_t*>(thread->block->shared);
  const std::uint32_t n = block_threads(thread);
  const std::uint32_t t = thread->thread_linear;
  std::uint32_t value = t;
  for (int round = 0; round < 10; ++round) {
    shared[t] = value;
    rt().barrier_sync(thread, 0, 0);
    value = shared[(t + 1) % n] + 1;
    rt().barrier_sync(thread, 0, 0);
  }
  params<Out>(thread).values[global_index(thread)] = value;
}

class EngineBarrier : public testing::TestWithParam<std::uint32_t> {};

TEST_P(EngineBarrier, OrdersAllThreadsOfTheBlock) {
  const std::uint32_t n = GetParam();
  auto engine = make_engine(2);
  std::vector<std::uint32_t> values(n * 3);
  const Out p{values.data()};
  LaunchRequest request = launch(rotate_kernel, {3, 1, 1}, {n, 1, 1}, &p);
  request.static_shared_bytes = n * 4;
  const GridResult result = engine->run(request);
  ASSERT_EQ(result.code, kGridOk) << result.message;
  for (std::uint32_t i = 0; i < n * 3; ++i) EXPECT_EQ(values[i], (i % n + 10) % n + 10);
}

INSTANTIATE_TEST_SUITE_P(Sizes, EngineBarrier, testing::Values(1, 31, 32, 33, 256, 1000, 1024));

// Half of the threads end before the barrier. The rest must not wait for them.
void ended_kernel(ThreadContext* thread) {
  if (thread->thread_linear % 2 == 1) {
    if (thread->thread_linear % 4 == 1) return;
    rt().exit(thread);
  }
  rt().barrier_sync(thread, 0, 0);
  params<Out>(thread).values[thread->thread_linear] = 1;
}

TEST(EngineBarrierCases, EndedThreadsCountAsArrived) {
  auto engine = make_engine(1);
  std::vector<std::uint32_t> values(100);
  const Out p{values.data()};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(engine->run(launch(ended_kernel, {1, 1, 1}, {100, 1, 1}, &p)).code, kGridOk);
  }
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(values[i], i % 2 == 0 ? 1u : 0u);
}

// Warps 0 and 1 meet at barrier 1, warps 2 and 3 at barrier 2, then all of them at 0.
void partial_kernel(ThreadContext* thread) {
  auto* shared = reinterpret_cast<std::uint32_t*>(thread->block->shared);
  const std::uint32_t t = thread->thread_linear;
  const std::uint32_t half = t / 64;
  std::uint32_t seen = 0;
  for (std::uint32_t round = 1; round <= 5 + half; ++round) {
    shared[t] = round;
    rt().barrier_sync(thread, 1 + half, 64);
    seen = shared[half * 64 + (t + 32) % 64];
    rt().barrier_sync(thread, 1 + half, 64);
  }
  rt().barrier_sync(thread, 0, 0);
  params<Out>(thread).values[t] = seen;
}

TEST(EngineBarrierCases, WarpGroupsUseSeparateBarriers) {
  auto engine = make_engine(1);
  std::vector<std::uint32_t> values(128);
  const Out p{values.data()};
  LaunchRequest request = launch(partial_kernel, {1, 1, 1}, {128, 1, 1}, &p);
  request.static_shared_bytes = 512;
  ASSERT_EQ(engine->run(request).code, kGridOk);
  for (std::uint32_t i = 0; i < 128; ++i) EXPECT_EQ(values[i], i < 64 ? 5u : 6u);
}

// 100 threads are 4 warps. A count of 128 includes the missing lanes.
void rounded_kernel(ThreadContext* thread) {
  rt().barrier_sync(thread, 3, 128);
  ++params<Out>(thread).values[thread->thread_linear];
}

TEST(EngineBarrierCases, CountIncludesMissingLanesOfLastWarp) {
  auto engine = make_engine(1);
  std::vector<std::uint32_t> values(100);
  const Out p{values.data()};
  ASSERT_EQ(engine->run(launch(rounded_kernel, {1, 1, 1}, {100, 1, 1}, &p)).code, kGridOk);
  for (const std::uint32_t value : values) EXPECT_EQ(value, 1u);
}

// Warp 0 produces and does not wait. Warp 1 waits for it.
void producer_kernel(ThreadContext* thread) {
  auto* shared = reinterpret_cast<std::uint32_t*>(thread->block->shared);
  const std::uint32_t t = thread->thread_linear;
  if (t < 32) {
    shared[t] = 100 + t;
    rt().barrier_arrive(thread, 4, 64);
    return;
  }
  rt().barrier_sync(thread, 4, 64);
  params<Out>(thread).values[t - 32] = shared[t - 32];
}

TEST(EngineBarrierCases, ArriveCountsWithoutWaiting) {
  auto engine = make_engine(1);
  std::vector<std::uint32_t> values(32);
  const Out p{values.data()};
  LaunchRequest request = launch(producer_kernel, {1, 1, 1}, {64, 1, 1}, &p);
  request.static_shared_bytes = 128;
  ASSERT_EQ(engine->run(request).code, kGridOk);
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], 100 + i);
}

void reduce_kernel(ThreadContext* thread) {
  const std::uint32_t t = thread->thread_linear;
  const auto reduce = [&](BarrierReduction how, bool value) {
    return rt().barrier_reduce(thread, 0, 0, static_cast<std::uint32_t>(how), value ? 1 : 0);
  };
  std::uint32_t ok = 1;
  ok &= reduce(BarrierReduction::kPopulation, t % 3 == 0) == 34;
  ok &= reduce(BarrierReduction::kAnd, true) == 1;
  ok &= reduce(BarrierReduction::kAnd, t != 57) == 0;
  ok &= reduce(BarrierReduction::kOr, false) == 0;
  ok &= reduce(BarrierReduction::kOr, t == 99) == 1;
  rt().barrier_sync(thread, 0, 0);
  ok &= reduce(BarrierReduction::kPopulation, true) == 100;
  params<Out>(thread).values[t] = ok;
}

TEST(EngineBarrierCases, ReductionsReachEveryThread) {
  auto engine = make_engine(1);
  std::vector<std::uint32_t> values(100);
  const Out p{values.data()};
  ASSERT_EQ(engine->run(launch(reduce_kernel, {1, 1, 1}, {100, 1, 1}, &p)).code, kGridOk);
  for (const std::uint32_t value : values) EXPECT_EQ(value, 1u);
}

void deadlock_kernel(ThreadContext* thread) {
  // Thread 7 waits at another barrier than the rest, so it waits for ever.
  rt().barrier_sync(thread, thread->thread_linear == 7 ? 2 : 1, 64);
}

TEST(EngineBarrierCases, DeadlockEndsTheGridAndNamesTheBarrier) {
  auto engine = make_engine(2);
  const Out p{nullptr};
  const GridResult result = engine->run(launch(deadlock_kernel, {2, 1, 1}, {40, 1, 1}, &p));
  EXPECT_EQ(result.code, kGridLaunchTimeout);
  EXPECT_EQ(result.kernel, "kernel_of_test");
  EXPECT_NE(result.message.find("39 arrived at barrier 1 of 64"), std::string::npos)
      << result.message;
  // The device still works.
  std::vector<std::uint32_t> values(100);
  const Out q{values.data()};
  EXPECT_EQ(engine->run(launch(reduce_kernel, {1, 1, 1}, {100, 1, 1}, &q)).code, kGridOk);
}

// Every block of a cluster publishes, then reads its neighbour's value after the cluster's barrier.
struct ClusterOut {
  std::atomic<std::uint32_t>* published;
  std::uint32_t* values;
};
void cluster_kernel(ThreadContext* thread) {
  const ClusterOut& p = params<ClusterOut>(thread);
  const std::uint32_t b = block_index(thread);
  std::uint32_t sum = 0;
  for (std::uint32_t round = 1; round <= 3; ++round) {
    if (thread->thread_linear == 5) p.published[b].store(round * 10 + b);
    rt().cluster_arrive(thread);
    rt().cluster_wait(thread);
    sum += p.published[b ^ 1].load();
    rt().cluster_arrive(thread);
    rt().cluster_wait(thread);
  }
  if (thread->thread_linear % 2 == 1) return;
  rt().cluster_arrive(thread);
  rt().cluster_wait(thread);
  p.values[global_index(thread)] = sum;
}

TEST(EngineBarrierCases, ClusterBarrierJoinsTwoBlocks) {
  for (const int threads : {1, 2}) {
    auto engine = make_engine(threads);
    std::vector<std::atomic<std::uint32_t>> published(8);
    std::vector<std::uint32_t> values(8 * 16);
    const ClusterOut p{published.data(), values.data()};
    LaunchRequest request = launch(cluster_kernel, {8, 1, 1}, {16, 1, 1}, &p);
    request.cluster = {2, 1, 1};
    const GridResult result = engine->run(request);
    ASSERT_EQ(result.code, kGridOk) << result.message;
    for (std::uint32_t i = 0; i < 8 * 16; i += 2) EXPECT_EQ(values[i], 60 + 3 * ((i / 16) ^ 1));
  }
}

TEST(EngineBarrierCases, ClusterBarrierOfOneBlockCompletes) {
  auto engine = make_engine(1);
  std::vector<std::atomic<std::uint32_t>> published(2);
  published[1] = 7;
  std::vector<std::uint32_t> values(16);
  const ClusterOut p{published.data(), values.data()};
  ASSERT_EQ(engine->run(launch(cluster_kernel, {1, 1, 1}, {16, 1, 1}, &p)).code, kGridOk);
  EXPECT_EQ(values[0], 21u);
}

}  // namespace
}  // namespace gpurun::emulated::test
