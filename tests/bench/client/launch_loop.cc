// Launch loop: launches of one kernel and nothing else. Of its eight arguments three change in each
// turn: an address, a count and a factor. sequences.py makes the log of this loop smaller.
#include "tests/bench/client/bench.h"

namespace gpurun::bench {

void measure_launch_loop(const Stage& s, Results* results) {
  constexpr int kLaunches = 20000;
  std::uint64_t values[8] = {s.memory, s.memory + 4096, s.memory + 8192, 1024, 32, 0, 0, 0};
  void* parameters[8];
  for (int i = 0; i < 8; ++i) parameters[i] = &values[i];
  const int launches = results->count(kLaunches);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < launches; ++i) {
    values[1] = s.memory + 4096 * (1 + static_cast<std::uint64_t>(i) % 1000);
    values[5] = static_cast<std::uint64_t>(i);
    values[6] = values[5] * values[5] * 0x9E3779B97F4A7C15;
    MUST(CU(cuLaunchKernel)(s.empty, 1, 1, 1, 32, 1, 1, 0, s.stream, parameters, nullptr));
  }
  MUST(CU(cuCtxSynchronize)());
  results->one("launches a second", "1/s", launches * 1e9 / nanoseconds(Clock::now() - start));
}

}  // namespace gpurun::bench
