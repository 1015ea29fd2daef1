// Launches: every thread of every block runs once with the right coordinates, in any shape, in
// order of block index. Small launches wake no thread.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/unit/emulated/engine/kernels.h"

namespace gpurun::emulated::test {
namespace {

struct Marks {
  std::uint32_t* count;
  std::uint32_t* order;
  std::atomic<std::uint32_t>* next;
};

void mark_kernel(ThreadContext* thread) {
  const Marks& p = params<Marks>(thread);
  const BlockContext& b = *thread->block;
  const std::uint32_t linear =
      thread->thread_id[0] +
      b.block_dim[0] * (thread->thread_id[1] + b.block_dim[1] * thread->thread_id[2]);
  if (linear == thread->thread_linear) ++p.count[global_index(thread)];
  if (thread->thread_linear == 0) p.order[p.next->fetch_add(1)] = block_index(thread);
}

void run_shape(Engine& engine, Extent grid, Extent block) {
  const std::uint64_t total = grid.count() * block.count();
  std::vector<std::uint32_t> count(total);
  std::vector<std::uint32_t> order(grid.count());
  std::atomic<std::uint32_t> next{0};
  const Marks p{count.data(), order.data(), &next};
  const GridResult result = engine.run(launch(mark_kernel, grid, block, &p));
  EXPECT_EQ(result.code, kGridOk) << result.message;
  for (std::uint64_t i = 0; i < total; ++i) ASSERT_EQ(count[i], 1u) << i;
}

TEST(EngineLaunch, EveryThreadRunsOnceWithItsCoordinates) {
  auto engine = make_engine(2);
  run_shape(*engine, {1, 1, 1}, {1, 1, 1});
  run_shape(*engine, {3, 2, 2}, {7, 3, 2});
  run_shape(*engine, {1, 1, 1}, {1024, 1, 1});
  run_shape(*engine, {5, 1, 3}, {8, 8, 16});
  run_shape(*engine, {300, 1, 1}, {33, 1, 1});
}

TEST(EngineLaunch, OnePoolThreadStartsBlocksInIndexOrder) {
  auto engine = make_engine(1);
  std::vector<std::uint32_t> count(64 * 4);
  std::vector<std::uint32_t> order(64);
  std::atomic<std::uint32_t> next{0};
  const Marks p{count.data(), order.data(), &next};
  Finish finish;
  engine->submit(launch(mark_kernel, {64, 1, 1}, {4, 1, 1}, &p), finish.expect_ok());
  finish.wait(1);
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(order[i], i);
}

struct Caller {
  std::atomic<std::thread::id>* where;
};
void caller_kernel(ThreadContext* thread) {
  params<Caller>(thread).where->store(std::this_thread::get_id());
}

TEST(EngineLaunch, SubmitDoesNotRunKernelOnCallingThread) {
  auto engine = make_engine(1);
  std::atomic<std::thread::id> where;
  const Caller p{&where};
  Finish finish;
  engine->submit(launch(caller_kernel, {1, 1, 1}, {1, 1, 1}, &p), finish.expect_ok());
  finish.wait(1);
  EXPECT_NE(where.load(), std::this_thread::get_id());
}

struct Chain {
  Engine* engine;
  LaunchRequest request;
  int left;
  Finish* finish;
};
void next_of_chain(Chain* chain) {
  chain->engine->submit(chain->request, [chain](const GridResult& result) {
    ASSERT_EQ(result.code, kGridOk);
    if (--chain->left > 0) {
      next_of_chain(chain);
    } else {
      chain->finish->keep()(result);
    }
  });
}

struct Count {
  std::atomic<std::uint64_t>* value;
};
void count_kernel(ThreadContext* thread) {
  params<Count>(thread).value->fetch_add(1, std::memory_order_relaxed);
}

TEST(EngineLaunch, SmallGridsRunWithoutWakingThreads) {
  auto engine = make_engine(2);
  std::atomic<std::uint64_t> value{0};
  const Count p{&value};
  const LaunchRequest request = launch(count_kernel, {1, 1, 1}, {64, 1, 1}, &p);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(engine->run(request).code, kGridOk);
  EXPECT_EQ(engine->counters().wakes, 0u);
  EXPECT_EQ(value.load(), 5000u * 64);
  // A chain of `done` callbacks needs at most the one wake that starts it.
  Finish finish;
  Chain chain{engine.get(), request, 5000, &finish};
  next_of_chain(&chain);
  finish.wait(1);
  EXPECT_EQ(value.load(), 10000u * 64);
  EXPECT_LE(engine->counters().wakes, 2u);
  EXPECT_EQ(engine->counters().grids, 10000u);
}

TEST(EngineLaunch, RejectsImpossibleLaunches) {
  auto engine = make_engine(1);
  const Count p{nullptr};
  EXPECT_NE(engine->run(launch(count_kernel, {1, 1, 1}, {1025, 1, 1}, &p)).code, kGridOk);
  EXPECT_NE(engine->run(launch(count_kernel, {0, 1, 1}, {32, 1, 1}, &p)).code, kGridOk);
  LaunchRequest deep = launch(count_kernel, {1, 1, 1}, {1, 1, 1}, &p);
  deep.stack_bytes = 1u << 30;
  EXPECT_EQ(engine->run(deep).code, kGridOutOfMemory);
  LaunchRequest odd = launch(count_kernel, {3, 1, 1}, {1, 1, 1}, &p);
  odd.cluster = {2, 1, 1};
  EXPECT_NE(engine->run(odd).code, kGridOk);
}

struct SharedCheck {
  std::atomic<int>* wrong;
};
void shared_kernel(ThreadContext* thread) {
  const BlockContext& b = *thread->block;
  std::atomic<int>& wrong = *params<SharedCheck>(thread).wrong;
  if (b.total_shared_bytes != 112 + 1000 || b.dynamic_shared_bytes != 1000) ++wrong;
  if (reinterpret_cast<std::uintptr_t>(b.shared) % 1024 != 0) ++wrong;
  std::memset(b.shared, 1, b.total_shared_bytes);
  std::uint8_t local[64];
  const auto address = reinterpret_cast<std::uint64_t>(&local);
  local[0] = 1;
#ifndef GPURUN_ASAN  // AddressSanitizer's fake stack lies elsewhere.
  if (address < thread->stack_low || address >= thread->stack_high) ++wrong;
#endif
  (void)address;
}

TEST(EngineLaunch, SharedMemoryAndStackMatchBlockContext) {
  auto engine = make_engine(1);
  std::atomic<int> wrong{0};
  const SharedCheck p{&wrong};
  LaunchRequest request = launch(shared_kernel, {2, 1, 1}, {3, 1, 1}, &p);
  request.static_shared_bytes = 100;  // Dynamic memory starts at the next multiple of 16.
  request.dynamic_shared_bytes = 1000;
  EXPECT_EQ(engine->run(request).code, kGridOk);
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace gpurun::emulated::test
