// Bench: the parts that all groups of measurements share. They are the driver under test, one
// context with the objects that calls need, and the results. The program knows nothing of gpurun:
// it opens libcuda.so.1 like any program. The same calls are therefore measured natively, under
// gpurun and under any other remoting command.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "tests/bench/results.h"

namespace gpurun::bench {

// Returns the address of an exported function of the opened libcuda. Exits with a message when it
// is missing.
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
  std::fprintf(stderr, "bench_client: %s answered %d\n", call, static_cast<int>(result));
  std::exit(1);
}
#define MUST(call) ::gpurun::bench::must((call), #call)

struct Stage {
  CUcontext context = nullptr;
  CUstream stream = nullptr, other_stream = nullptr;  // Both non-blocking.
  CUevent event = nullptr;
  CUdeviceptr memory = 0;      // kBytes large.
  void* pinned = nullptr;      // kBytes large.
  CUfunction empty = nullptr;  // A kernel of eight parameters that does nothing.
  CUfunction stamp = nullptr;  // Writes the device's clock to the address in its parameter.

  static constexpr std::size_t kBytes = std::size_t{64} << 20;
};

// Runs a small program up to its first kernel's result: a context, a module, 4 bytes of memory, a
// launch, a copy. `salt` makes the module's text unique, so that no server or cache knows it.
struct SmallProgram {
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  CUfunction empty = nullptr, stamp = nullptr;
};
SmallProgram run_small_program(const std::string& salt);

// Fills memory with bytes that do not compress.
void fill_randomly(void* memory, std::size_t bytes);

// The groups. Each leaves the device idle.
void measure_posted_calls(const Stage& stage, Results* results);
void measure_posted_by_two(const Stage& stage, Results* results);  // Part of "posted".
void measure_fences(const Stage& stage, Results* results);
void measure_objects(const Stage& stage, Results* results);
void measure_copies(const Stage& stage, Results* results);
void measure_lone_launch(const Stage& stage, Results* results);
void measure_slow_link(const Stage& stage, Results* results);
void measure_launch_sizes(const Stage& stage, Results* results);
void measure_launch_loop(const Stage& stage, Results* results);

// Groups that make their own context. `words` are the words after the group's name.
using Words = std::vector<std::string>;
void measure_start(const Words& words, Results* results);
void measure_steady_loop(const Words& words, Results* results);
void measure_waits(const Words& words, Results* results);
void stay_idle(const Words& words, Results* results);
void saturate(const Words& words, Results* results);

}  // namespace gpurun::bench
