// Block ranges of kernels in their fast form: many blocks are handed out together, each of them
// once. A block that waits for lower ones sees them end.
#include <thread>

#include "tests/unit/emulated/engine/kernels.h"

namespace gpurun::emulated::test {
namespace {

struct Blocks {
  std::atomic<std::uint32_t>* runs;  // For each block.
  std::atomic<std::uint32_t>* sum;
  std::uint32_t failing;  // The block that traps.
};

void not_called(ThreadContext*) { ADD_FAILURE() << "a thread of a kernel in its fast form"; }

std::uint32_t count_blocks(ThreadContext* thread, const RegionFrame*, std::uint32_t begin,
                           std::uint32_t end) {
  const Blocks& p = params<Blocks>(thread);
  const std::uint32_t block = block_index(thread);
  if (block == p.failing) rt().trap(thread, 7);
  p.runs[block].fetch_add(end - begin);
  p.sum->fetch_add(1);
  return kRegionEnded;
}

// A sum that passes from block to block, read by an atomic that does not count as polling.
std::uint32_t wait_for_lower(ThreadContext* thread, const RegionFrame*, std::uint32_t,
                             std::uint32_t) {
  const Blocks& p = params<Blocks>(thread);
  const std::uint32_t block = block_index(thread);
  std::uint32_t before = 0;
  while (block > 0 && (before = p.runs[block - 1].fetch_add(0)) == 0) std::this_thread::yield();
  p.runs[block].store(before + 1);
  p.sum->fetch_add(1);
  return kRegionEnded;
}

template <RegionFunction function>
const RegionProgram& program_of() {
  static const RegionFunction functions[] = {function};
  static const RegionProgram program{0, 0, 0, 0, functions, nullptr};
  return program;
}

class EngineRanges : public testing::TestWithParam<int> {
 protected:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  LaunchRequest request(const RegionProgram& program, std::uint32_t blocks) {
    runs_ = std::vector<std::atomic<std::uint32_t>>(blocks);
    sum_ = 0;
    params_ = {runs_.data(), &sum_, kNone};
    LaunchRequest launched = launch(not_called, {blocks, 1, 1}, {64, 1, 1}, &params_);
    launched.regions = &program;
    return launched;
  }

  std::vector<std::atomic<std::uint32_t>> runs_;
  std::atomic<std::uint32_t> sum_{0};
  Blocks params_{};
};
INSTANTIATE_TEST_SUITE_P(PoolThreads, EngineRanges, testing::Values(1, 2, 5));

TEST_P(EngineRanges, EveryBlockRunsOnce) {
  auto engine = make_engine(GetParam());
  for (const std::uint32_t blocks : {1u, 2u, 17u, 1000u, 30011u}) {
    const LaunchRequest launched = request(program_of<count_blocks>(), blocks);
    const GridResult result = engine->run(launched);
    EXPECT_EQ(result.code, kGridOk) << result.message;
    EXPECT_EQ(sum_.load(), blocks);
    for (std::uint32_t i = 0; i < blocks; ++i) ASSERT_EQ(runs_[i].load(), 64u) << i;
  }
  EXPECT_EQ(engine->counters().blocks, 1u + 2u + 17u + 1000u + 30011u);
}

TEST_P(EngineRanges, ConcurrentGridsRunEveryBlock) {
  auto engine = make_engine(GetParam());
  const std::uint32_t blocks = 30011;
  Finish finish;
  const LaunchRequest launched = request(program_of<count_blocks>(), blocks);
  for (int i = 0; i < 5; ++i) engine->submit(launched, finish.expect_ok());
  finish.wait(5);
  EXPECT_EQ(sum_.load(), 5 * blocks);
  for (std::uint32_t i = 0; i < blocks; ++i) ASSERT_EQ(runs_[i].load(), 5 * 64u) << i;
}

TEST_P(EngineRanges, BlocksWaitingForPreviousBlockFinish) {
  auto engine = make_engine(GetParam());
  const std::uint32_t blocks = 5000;
  const GridResult result = engine->run(request(program_of<wait_for_lower>(), blocks));
  EXPECT_EQ(result.code, kGridOk) << result.message;
  for (std::uint32_t i = 0; i < blocks; ++i) ASSERT_EQ(runs_[i].load(), i + 1);
}

TEST_P(EngineRanges, FailureEndsOnlyItsGrid) {
  auto engine = make_engine(GetParam());
  LaunchRequest launched = request(program_of<count_blocks>(), 30011);
  params_.failing = 777;
  const GridResult failed = engine->run(launched);
  EXPECT_EQ(failed.code, kGridLaunchFailed);
  EXPECT_EQ(failed.block.x, 777u);
  EXPECT_LT(sum_.load(), 30011u);
  launched = request(program_of<count_blocks>(), 30011);
  EXPECT_EQ(engine->run(launched).code, kGridOk);
  EXPECT_EQ(sum_.load(), 30011u);
}

}  // namespace
}  // namespace gpurun::emulated::test
