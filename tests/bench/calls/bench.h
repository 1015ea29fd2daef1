// What every group of measurements shares: the driver under test, one context with what calls need,
// and where results go. The program knows nothing of gpurun: it opens libcuda.so.1 like any other,
// so that the same calls are measured natively, under gpurun and under any other remoting command.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace gpurun::bench {

// The address of an exported function of the opened libcuda; exits with a message where there is
// none.
void* driver_function(const char* name);

// The function `name`, looked up once: CU(cuInit)(0).
#define CU(name)                                                                      \
  ([]() -> decltype(&::name) {                                                        \
    static const auto found =                                                         \
        reinterpret_cast<decltype(&::name)>(::gpurun::bench::driver_function(#name)); \
    return found;                                                                     \
  }())

inline void must(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "calls_bench: %s answered %d\n", call, static_cast<int>(result));
  std::exit(1);
}
#define MUST(call) ::gpurun::bench::must((call), #call)

struct Stage {
  CUcontext context = nullptr;
  CUstream stream = nullptr, other_stream = nullptr;  // Both non-blocking.
  CUevent event = nullptr;
  CUdeviceptr memory = 0;      // kBytes of it.
  void* pinned = nullptr;      // kBytes of it.
  CUfunction empty = nullptr;  // Eight parameters, does nothing.
  CUfunction stamp = nullptr;  // Writes the device's clock to the address at its parameter.

  static constexpr std::size_t kBytes = std::size_t{64} << 20;
};

using Clock = std::chrono::steady_clock;

inline double nanoseconds(Clock::duration took) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
}

// What a reading of the clock costs, which each sample would hold too much: the least of several,
// because a busy machine only adds to it.
double clock_nanoseconds();

// One line of the result: samples in `unit`, smaller is better for "ns", larger for rates.
struct Row {
  std::string name, unit;
  std::vector<double> samples;
};

class Results {
 public:
  // Times each of `count` calls of `call` by itself, in nanoseconds, after a tenth as many
  // unmeasured. `settle` runs, unmeasured, after every `every` calls: it keeps queues from filling.
  template <typename Call, typename Settle>
  void each(const std::string& name, int count, Call call, int every, Settle settle) {
    Row row{name, "ns", {}};
    row.samples.reserve(static_cast<std::size_t>(count));
    const double clock = clock_nanoseconds();
    for (int i = -count / 10; i < count; ++i) {
      const Clock::time_point start = Clock::now();
      call();
      const Clock::time_point end = Clock::now();
      if (i >= 0) row.samples.push_back(std::max(0.0, nanoseconds(end - start) - clock));
      if ((i + count) % every == every - 1) settle();
    }
    add(std::move(row));
  }
  template <typename Call>
  void each(const std::string& name, int count, Call call) {
    each(name, count, call, count + count, [] {});
  }

  void add(Row row) { rows_.push_back(std::move(row)); }

  // One JSON object: {"row": {"unit": ..., "p50": ..., "p99": ..., "samples": N}, ...}.
  void print() const;

 private:
  std::vector<Row> rows_;
};

// The groups. Each leaves the device idle.
void measure_baselines(Results* results);  // Before cuInit: it forks.
void measure_posted_calls(const Stage& stage, Results* results);
void measure_fences(const Stage& stage, Results* results);
void measure_objects(const Stage& stage, Results* results);
void measure_copies(const Stage& stage, Results* results);
void measure_lone_launch(const Stage& stage, Results* results);

}  // namespace gpurun::bench
