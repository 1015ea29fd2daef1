// Lone launch: the delay from a call to its start on the device when no other call follows, beside
// a launch that a synchronise follows at once. If a timer sent anything, the first delay would be
// longer by that timer. The device's clock is compared with the program's. The result therefore has
// a meaning only where %globaltimer is this machine's monotonic clock: on the emulated device,
// natively or on loopback.
#include <ctime>
#include <thread>

#include "tests/bench/client/bench.h"

namespace gpurun::bench {
namespace {

constexpr int kLaunches = 100;
constexpr auto kSilence = std::chrono::milliseconds(5);  // Longer than any plausible timer.

std::int64_t monotonic_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

}  // namespace

void measure_lone_launch(const Stage& s, Results* results) {
  CUdeviceptr at = s.memory;
  void* parameters[1] = {&at};
  for (const bool followed : {false, true}) {
    Row row{followed ? "start of a launch with a synchronise behind it" : "start of a lone launch",
            "ns",
            {}};
    for (int i = -5; i < results->count(kLaunches); ++i) {
      const std::int64_t called = monotonic_nanoseconds();
      MUST(CU(cuLaunchKernel)(s.stamp, 1, 1, 1, 1, 1, 1, 0, s.stream, parameters, nullptr));
      if (followed) {
        MUST(CU(cuStreamSynchronize)(s.stream));
      } else {
        std::this_thread::sleep_for(kSilence);
      }
      std::int64_t started = 0;
      MUST(CU(cuMemcpyDtoH_v2)(&started, s.memory, sizeof started));
      if (i >= 0) row.samples.push_back(static_cast<double>(started - called));
    }
    results->add(std::move(row));
  }
}

}  // namespace gpurun::bench
