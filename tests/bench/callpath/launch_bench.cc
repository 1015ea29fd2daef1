// What an asynchronous call costs the program: cuLaunchKernel with eight parameters and
// cuEventRecord, in bursts that the command log holds, each call timed by itself. Run it under
// gpurun, best on the null device: gpurun -l HOST -- launch_bench.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kBursts = 200, kBurst = 1000;

const char* const kImage = R"(.version 8.0
.target sm_70
.address_size 64
.visible .entry eight(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 d, .param .u32 e,
                      .param .f32 f, .param .f32 g, .param .u64 h) { ret; }
)";

void* library;

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: %d\n", what, static_cast<int>(result));
  std::exit(1);
}

template <typename Function>
Function* find(const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) std::exit(2);
  return function;
}
#define CU(name) find<decltype(name)>(#name)

// What a reading of the clock costs, which every figure here would hold too much: the least of
// several, because a busy machine only adds to it.
double clock_ns() {
  constexpr int kReadings = 5'000;
  double least = 1e9;
  for (int round = 0; round < 50; ++round) {
    const Clock::time_point start = Clock::now();
    Clock::time_point end = start;
    for (int i = 0; i < kReadings; ++i) end = Clock::now();
    least =
        std::min(least, std::chrono::duration<double, std::nano>(end - start).count() / kReadings);
  }
  return least;
}

template <typename Call>
void measure(const char* name, Call call, decltype(cuCtxSynchronize)* synchronize) {
  std::vector<double> took;
  const double clock = clock_ns();
  for (int burst = 0; burst < kBursts; ++burst) {
    for (int i = 0; i < kBurst; ++i) {
      const Clock::time_point start = Clock::now();
      must(call(), name);
      took.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() -
                     clock);
    }
    must(synchronize(), "cuCtxSynchronize");
  }
  std::sort(took.begin(), took.end());
  const auto at = [&](double part) {
    return took[static_cast<std::size_t>(part * static_cast<double>(took.size() - 1))];
  };
  std::printf("%-16s p50 %.0f ns, p90 %.0f ns, p99 %.0f ns\n", name, at(0.5), at(0.9), at(0.99));
}

}  // namespace

int main() {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return 2;
  auto* const synchronize = CU(cuCtxSynchronize);
  must(CU(cuInit)(0), "cuInit");
  CUcontext context = nullptr;
  must(CU(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
  must(CU(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  CUmodule module = nullptr;
  must(CU(cuModuleLoadData)(&module, kImage), "cuModuleLoadData");
  CUfunction function = nullptr;
  must(CU(cuModuleGetFunction)(&function, module, "eight"), "cuModuleGetFunction");
  CUevent event = nullptr;
  must(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");

  std::uint64_t a = 1, b = 2, c = 3, h = 4;
  std::uint32_t d = 5, e = 6;
  float f = 7, g = 8;
  void* parameters[] = {&a, &b, &c, &d, &e, &f, &g, &h};
  auto* const launch = CU(cuLaunchKernel);
  auto* const record = CU(cuEventRecord);
  for (int round = 0; round < 3; ++round) {
    measure(
        "cuLaunchKernel",
        [&] { return launch(function, 4, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr); },
        synchronize);
    measure(
        "cuEventRecord", [&] { return record(event, nullptr); }, synchronize);
  }
  return 0;
}
