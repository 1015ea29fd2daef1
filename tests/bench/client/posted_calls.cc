// Posted calls: the cost for the caller of calls that CUDA lets return at once, and their number a
// second.
#include "tests/bench/client/bench.h"

namespace gpurun::bench {
namespace {

constexpr int kCalls = 20000;
constexpr int kBatch = 500;  // After that many calls the queues are emptied, unmeasured.
constexpr int kLaunches = 100000;
constexpr int kRounds = 5;

}  // namespace

void measure_posted_calls(const Stage& s, Results* results) {
  std::uint64_t values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  void* parameters[8];
  for (int i = 0; i < 8; ++i) parameters[i] = &values[i];
  const auto launch = [&] {
    MUST(CU(cuLaunchKernel)(s.empty, 1, 1, 1, 32, 1, 1, 0, s.stream, parameters, nullptr));
  };
  const auto settle = [] { MUST(CU(cuCtxSynchronize)()); };
  results->each("launch, 8 parameters", kCalls, launch, kBatch, settle);
  results->each(
      "event record", kCalls, [&] { MUST(CU(cuEventRecord)(s.event, s.stream)); }, kBatch, settle);
  results->each(
      "stream wait event", kCalls, [&] { MUST(CU(cuStreamWaitEvent)(s.other_stream, s.event, 0)); },
      kBatch, settle);
  results->each(
      "event record + stream wait", kCalls,
      [&] {
        MUST(CU(cuEventRecord)(s.event, s.stream));
        MUST(CU(cuStreamWaitEvent)(s.other_stream, s.event, 0));
      },
      kBatch, settle);
  results->each(
      "memset async 64 B", kCalls, [&] { MUST(CU(cuMemsetD8Async)(s.memory, 1, 64, s.stream)); },
      kBatch, settle);
  results->each(
      "copy in async 64 B, pinned", kCalls,
      [&] { MUST(CU(cuMemcpyHtoDAsync_v2)(s.memory, s.pinned, 64, s.stream)); }, kBatch, settle);

  Row rate{"launches a second", "1/s", {}};
  const int launches = results->count(kLaunches);
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < launches; ++i) launch();
    settle();
    rate.samples.push_back(launches * 1e9 / nanoseconds(Clock::now() - start));
  }
  results->add(std::move(rate));
  measure_posted_by_two(s, results);
}

}  // namespace gpurun::bench
