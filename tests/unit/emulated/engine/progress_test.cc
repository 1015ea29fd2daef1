// Forward progress: grids and blocks that wait for each other through memory finish, with one pool
// thread or two. An endless grid can be reported and cancelled.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/unit/emulated/engine/kernels.h"

namespace gpurun::emulated::test {
namespace {

class EngineProgress : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(PoolThreads, EngineProgress, testing::Values(1, 2));

struct PingPong {
  std::atomic<std::uint32_t>* mine;
  std::atomic<std::uint32_t>* other;
};
void ping_kernel(ThreadContext* thread) {
  const PingPong& p = params<PingPong>(thread);
  for (std::uint32_t round = 1; round <= 50; ++round) {
    if (thread->thread_linear == 0) p.mine->store(round, std::memory_order_release);
    spin_until(thread, *p.other, round);
    rt().barrier_sync(thread, 0, 0);
  }
}

TEST_P(EngineProgress, MutuallyWaitingGridsFinish) {
  auto engine = make_engine(GetParam());
  std::atomic<std::uint32_t> a{0};
  std::atomic<std::uint32_t> b{0};
  const PingPong p{&a, &b};
  const PingPong q{&b, &a};
  Finish finish;
  engine->submit(launch(ping_kernel, {1, 1, 1}, {64, 1, 1}, &p), finish.expect_ok());
  engine->submit(launch(ping_kernel, {1, 1, 1}, {64, 1, 1}, &q), finish.expect_ok());
  finish.wait(2);
}

TEST_P(EngineProgress, MutuallyWaitingGridsOfTwoHostThreadsFinish) {
  auto engine = make_engine(GetParam());
  std::atomic<std::uint32_t> a{0};
  std::atomic<std::uint32_t> b{0};
  const PingPong p{&a, &b};
  const PingPong q{&b, &a};
  std::thread other([&] {
    EXPECT_EQ(engine->run(launch(ping_kernel, {1, 1, 1}, {64, 1, 1}, &q)).code, kGridOk);
  });
  EXPECT_EQ(engine->run(launch(ping_kernel, {1, 1, 1}, {64, 1, 1}, &p)).code, kGridOk);
  other.join();
}

struct Flag {
  std::atomic<std::uint32_t>* flag;
  std::atomic<std::uint32_t>* entered;
};
void wait_kernel(ThreadContext* thread) {
  const Flag& p = params<Flag>(thread);
  p.entered->fetch_add(1);
  spin_until(thread, *p.flag, 1u);
}

TEST_P(EngineProgress, KernelSeesFlagSetByHost) {
  auto engine = make_engine(GetParam());
  std::atomic<std::uint32_t> flag{0};
  std::atomic<std::uint32_t> entered{0};
  const Flag p{&flag, &entered};
  Finish finish;
  engine->submit(launch(wait_kernel, {4, 1, 1}, {32, 1, 1}, &p), finish.expect_ok());
  // All four blocks become resident although each of them waits.
  while (entered.load() < 4 * 32) std::this_thread::yield();
  flag = 1;
  finish.wait(1);
}

TEST_P(EngineProgress, GridsRunWhileAnotherGridPolls) {
  auto engine = make_engine(GetParam());
  std::atomic<std::uint32_t> flag{0};
  std::atomic<std::uint32_t> entered{0};
  const Flag p{&flag, &entered};
  Finish waiting;
  Finish finish;
  engine->submit(launch(wait_kernel, {1, 1, 1}, {1, 1, 1}, &p), waiting.expect_ok());
  std::atomic<std::uint32_t> open{1};
  const Flag q{&open, &entered};
  for (int i = 0; i < 20; ++i) {
    engine->submit(launch(wait_kernel, {3, 1, 1}, {32, 1, 1}, &q), finish.expect_ok());
  }
  finish.wait(20);
  flag = 1;
  waiting.wait(1);
}

// Block i waits for block i + 1, so it ends only if all of them are resident.
struct Lookahead {
  std::atomic<std::uint32_t>* words;
};
void lookahead_kernel(ThreadContext* thread) {
  const Lookahead& p = params<Lookahead>(thread);
  const std::uint32_t b = block_index(thread);
  if (b + 1 < thread->block->grid_dim[0]) spin_until(thread, p.words[b + 1], 1u);
  p.words[b].store(1, std::memory_order_release);
}

TEST_P(EngineProgress, BlocksWaitingForLaterBlocksFinish) {
  auto engine = make_engine(GetParam());
  std::vector<std::atomic<std::uint32_t>> words(40);
  const Lookahead p{words.data()};
  EXPECT_EQ(engine->run(launch(lookahead_kernel, {40, 1, 1}, {1, 1, 1}, &p)).code, kGridOk);
}

// A spin lock taken by every lane of a warp in turn.
struct Lock {
  std::atomic<std::uint32_t>* lock;
  std::uint32_t* value;
};
void lock_kernel(ThreadContext* thread) {
  const Lock& p = params<Lock>(thread);
  for (int i = 0; i < 3; ++i) {
    std::uint32_t free = 0;
    while (!p.lock->compare_exchange_strong(free, 1)) {
      free = 0;
      poll(thread);
    }
    const std::uint32_t value = *p.value;
    rt().yield(thread);  // Others run while the lock is held.
    *p.value = value + 1;
    p.lock->store(0, std::memory_order_release);
  }
}

TEST_P(EngineProgress, EveryWarpLaneAcquiresSpinLock) {
  auto engine = make_engine(GetParam());
  std::atomic<std::uint32_t> lock{0};
  std::uint32_t value = 0;
  const Lock p{&lock, &value};
  EXPECT_EQ(engine->run(launch(lock_kernel, {4, 1, 1}, {64, 1, 1}, &p)).code, kGridOk);
  EXPECT_EQ(value, 4u * 64 * 3);
}

// A grid-wide barrier of a cooperative launch, in the workspace that the launch provides.
struct Cooperative {
  std::uint32_t* values;
  std::atomic<std::uint32_t>* wrong;
};
void grid_sync(ThreadContext* thread, std::uint32_t goal) {
  rt().barrier_sync(thread, 0, 0);
  if (thread->thread_linear == 0) {
    auto* words = reinterpret_cast<std::uint32_t*>(thread->block->grid_workspace);
    std::atomic_ref<std::uint32_t> barrier(words[1]);
    barrier.fetch_add(1);
    while (barrier.load() < goal) poll(thread);
  }
  rt().barrier_sync(thread, 0, 0);
}
void cooperative_kernel(ThreadContext* thread) {
  const Cooperative& p = params<Cooperative>(thread);
  const std::uint32_t blocks = thread->block->grid_dim[0];
  const std::uint32_t b = block_index(thread);
  for (std::uint32_t round = 1; round <= 6; ++round) {
    if (thread->thread_linear == 0) p.values[b] = round;
    grid_sync(thread, (2 * round - 1) * blocks);
    if (p.values[(b + 1) % blocks] != round) p.wrong->fetch_add(1);
    grid_sync(thread, 2 * round * blocks);
  }
}

TEST_P(EngineProgress, CooperativeGridsSynchronise) {
  auto engine = make_engine(GetParam());
  std::vector<std::uint32_t> values(24);
  std::atomic<std::uint32_t> wrong{0};
  const Cooperative p{values.data(), &wrong};
  LaunchRequest request = launch(cooperative_kernel, {24, 1, 1}, {64, 1, 1}, &p);
  request.cooperative = true;
  const GridResult result = engine->run(request);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  EXPECT_EQ(wrong.load(), 0u);
}

// The same by the functions behind cudaCGSynchronize, which numba calls.
void grouped_kernel(ThreadContext* thread) {
  const Cooperative& p = params<Cooperative>(thread);
  const std::uint32_t blocks = thread->block->grid_dim[0];
  const std::uint32_t b = block_index(thread);
  const std::uint64_t grid = rt().group_handle(thread, 1);
  std::uint32_t size = 0, groups = 0, rank = 0, group = 9;
  const auto place = [](std::uint32_t* of) { return reinterpret_cast<std::uint64_t>(of); };
  const std::uint32_t failed = rt().group_size(thread, place(&size), place(&groups), grid) +
                               rt().group_rank(thread, place(&rank), place(&group), grid);
  const bool right = failed == 0 && size == blocks * 64 && groups == 1 && group == 0 &&
                     rank == b * 64 + thread->thread_linear;
  if (!right || rt().group_handle(thread, 2) != 0) p.wrong->fetch_add(1);
  for (std::uint32_t round = 1; round <= 6; ++round) {
    if (thread->thread_linear == 0) p.values[b] = round;
    if (rt().group_sync(thread, grid, 0) != 0) p.wrong->fetch_add(1);
    if (p.values[(b + 1) % blocks] != round) p.wrong->fetch_add(1);
    if (rt().group_sync(thread, grid, 0) != 0) p.wrong->fetch_add(1);
  }
}

TEST_P(EngineProgress, DeviceRuntimeGroupsSynchronise) {
  auto engine = make_engine(GetParam());
  std::vector<std::uint32_t> values(24);
  std::atomic<std::uint32_t> wrong{0};
  const Cooperative p{values.data(), &wrong};
  LaunchRequest request = launch(grouped_kernel, {24, 1, 1}, {64, 1, 1}, &p);
  request.cooperative = true;
  const GridResult result = engine->run(request);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  EXPECT_EQ(wrong.load(), 0u);
}

void sleep_kernel(ThreadContext* thread) {
  const Flag& p = params<Flag>(thread);
  p.entered->fetch_add(1);
  while (p.flag->load() == 0) rt().sleep(thread, 100);
}

TEST_P(EngineProgress, SleepingThreadsYield) {
  auto engine = make_engine(GetParam());
  std::atomic<std::uint32_t> flag{0};
  std::atomic<std::uint32_t> entered{0};
  const Flag p{&flag, &entered};
  Finish finish;
  engine->submit(launch(sleep_kernel, {2, 1, 1}, {40, 1, 1}, &p), finish.expect_ok());
  while (entered.load() < 80) std::this_thread::yield();
  flag = 1;
  finish.wait(1);
}

TEST_P(EngineProgress, CancelEndsOnlyGridsOfItsContext) {
  auto engine = make_engine(GetParam());
  std::atomic<std::uint32_t> flag{0};
  std::atomic<std::uint32_t> entered{0};
  const Flag p{&flag, &entered};
  ContextRuntime one;
  ContextRuntime two;
  Finish first;
  Finish second;
  LaunchRequest request = launch(wait_kernel, {2, 1, 1}, {32, 1, 1}, &p);
  request.context = &one;
  engine->submit(request, first.keep());
  request.context = &two;
  engine->submit(request, second.expect_ok());
  engine->cancel(&one, kGridLaunchFailed);
  first.wait(1);
  EXPECT_EQ(first.results()[0].code, kGridLaunchFailed);
  flag = 1;
  second.wait(1);
}

TEST_P(EngineProgress, DestroyingEngineEndsWaitingGrids) {
  std::atomic<std::uint32_t> flag{0};
  std::atomic<std::uint32_t> entered{0};
  const Flag p{&flag, &entered};
  Finish finish;
  auto engine = make_engine(GetParam());
  for (int i = 0; i < 3; ++i) {
    engine->submit(launch(wait_kernel, {2, 1, 1}, {32, 1, 1}, &p), finish.keep());
  }
  engine.reset();
  finish.wait(3);
  for (const GridResult& result : finish.results()) EXPECT_EQ(result.code, kGridLaunchFailed);
}

TEST_P(EngineProgress, WatchdogReportsAndKillsLongGrid) {
  EngineOptions options;
  options.watchdog_ms = 5;
  options.watchdog_kills = true;
  auto engine = make_engine(GetParam(), options);
  std::atomic<std::uint32_t> flag{0};
  std::atomic<std::uint32_t> entered{0};
  const Flag p{&flag, &entered};
  testing::internal::CaptureStderr();
  const GridResult result = engine->run(launch(wait_kernel, {1, 1, 1}, {32, 1, 1}, &p));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.code, kGridLaunchTimeout);
  EXPECT_NE(log.find("kernel_of_test (grid 1x1x1, block 32x1x1) has been running"),
            std::string::npos)
      << log;
}

TEST_P(EngineProgress, WatchdogReportsThreadStates) {
  EngineOptions options;
  options.watchdog_ms = 5;
  auto engine = make_engine(GetParam(), options);
  std::atomic<std::uint32_t> flag{0};
  std::atomic<std::uint32_t> entered{0};
  const Flag p{&flag, &entered};
  Finish finish;
  testing::internal::CaptureStderr();
  engine->submit(launch(wait_kernel, {1, 1, 1}, {32, 1, 1}, &p), finish.expect_ok());
  // Another thread writes the report. Two periods later it is complete.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  flag = 1;
  finish.wait(1);
  engine.reset();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("32 poll memory"), std::string::npos) << log;
}

}  // namespace
}  // namespace gpurun::emulated::test
