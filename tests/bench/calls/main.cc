// calls_bench [--lone-launch]: measures calls of the CUDA driver that this process finds as
// libcuda.so.1, and writes one JSON object to its standard output. `compare` beside it runs it
// natively and through gpurun.
#include <dlfcn.h>

#include <cstring>

#include "tests/bench/calls/bench.h"

namespace gpurun::bench {
namespace {

constexpr char kKernels[] = R"ptx(
.version 7.0
.target sm_75
.address_size 64

.visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,
                      .param .u64 e, .param .u64 f, .param .u64 g, .param .u64 h)
{
  ret;
}

.visible .entry stamp(.param .u64 at)
{
  .reg .u64 %address, %now;
  mov.u64 %now, %globaltimer;
  ld.param.u64 %address, [at];
  cvta.to.global.u64 %address, %address;
  st.global.u64 [%address], %now;
  ret;
}
)ptx";

Stage set_up() {
  Stage stage;
  CUdevice device = 0;
  CUmodule module = nullptr;
  MUST(CU(cuInit)(0));
  MUST(CU(cuDeviceGet)(&device, 0));
  MUST(CU(cuDevicePrimaryCtxRetain)(&stage.context, device));
  MUST(CU(cuCtxSetCurrent)(stage.context));
  MUST(CU(cuStreamCreate)(&stage.stream, CU_STREAM_NON_BLOCKING));
  MUST(CU(cuStreamCreate)(&stage.other_stream, CU_STREAM_NON_BLOCKING));
  MUST(CU(cuEventCreate)(&stage.event, CU_EVENT_DISABLE_TIMING));
  MUST(CU(cuMemAlloc_v2)(&stage.memory, Stage::kBytes));
  MUST(CU(cuMemHostAlloc)(&stage.pinned, Stage::kBytes, 0));
  std::memset(stage.pinned, 1, Stage::kBytes);
  MUST(CU(cuModuleLoadData)(&module, kKernels));
  MUST(CU(cuModuleGetFunction)(&stage.empty, module, "empty"));
  MUST(CU(cuModuleGetFunction)(&stage.stamp, module, "stamp"));
  return stage;
}

double at_share(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

double clock_nanoseconds() {
  constexpr int kReadings = 2000;
  static const double least = [] {
    double best = 1e9;
    for (int round = 0; round < 50; ++round) {
      const Clock::time_point start = Clock::now();
      Clock::time_point end = start;
      for (int i = 0; i < kReadings; ++i) end = Clock::now();
      best = std::min(best, nanoseconds(end - start) / kReadings);
    }
    return best;
  }();
  return least;
}

void* driver_function(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* found = library == nullptr ? nullptr : dlsym(library, name);
  if (found != nullptr) return found;
  std::fprintf(stderr, "calls_bench: %s\n", dlerror());
  std::exit(1);
}

void Results::print() const {
  std::printf("{");
  const char* separator = "\n";
  for (const Row& row : rows_) {
    std::vector<double> sorted = row.samples;
    std::sort(sorted.begin(), sorted.end());
    std::printf("%s  \"%s\": {\"unit\": \"%s\", \"p50\": %.6g, \"p99\": %.6g, \"samples\": %zu}",
                separator, row.name.c_str(), row.unit.c_str(), at_share(sorted, 0.5),
                at_share(sorted, 0.99), sorted.size());
    separator = ",\n";
  }
  std::printf("\n}\n");
}

}  // namespace gpurun::bench

int main(int count, char** arguments) {
  using namespace gpurun::bench;
  const bool lone_launch = count == 2 && std::strcmp(arguments[1], "--lone-launch") == 0;
  if (count > 1 && !lone_launch) {
    std::fprintf(stderr, "usage: calls_bench [--lone-launch]\n");
    return 2;
  }
  Results results;
  if (!lone_launch) measure_baselines(&results);
  const Stage stage = set_up();
  if (lone_launch) {
    measure_lone_launch(stage, &results);
  } else {
    measure_posted_calls(stage, &results);
    measure_fences(stage, &results);
    measure_objects(stage, &results);
    measure_copies(stage, &results);
  }
  results.print();
}
