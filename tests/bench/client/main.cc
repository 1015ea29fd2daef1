// bench_client [--quick | --row NAME SECONDS] GROUP [WORD...]: measures calls of the CUDA driver
// that this process finds as libcuda.so.1, and writes one JSON object to its standard output. `run`
// beside this folder runs it natively and through gpurun.
#include <dlfcn.h>

#include <cstring>
#include <map>
#include <optional>

#include "tests/bench/client/bench.h"

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

CUcontext primary_context() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  MUST(CU(cuInit)(0));
  MUST(CU(cuDeviceGet)(&device, 0));
  MUST(CU(cuDevicePrimaryCtxRetain)(&context, device));
  MUST(CU(cuCtxSetCurrent)(context));
  return context;
}

Stage set_up() {
  Stage stage;
  CUmodule module = nullptr;
  stage.context = primary_context();
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

using OnStage = void (*)(const Stage&, Results*);
const std::map<std::string, OnStage> kOnStage = {
    {"posted", measure_posted_calls}, {"fences", measure_fences},
    {"objects", measure_objects},     {"copies", measure_copies},
    {"lone", measure_lone_launch},    {"slow-link", measure_slow_link},
    {"sizes", measure_launch_sizes},  {"loop", measure_launch_loop},
};
using Alone = void (*)(const Words&, Results*);
const std::map<std::string, Alone> kAlone = {
    {"start", measure_start}, {"steady", measure_steady_loop}, {"waits", measure_waits},
    {"idle", stay_idle},      {"saturate", saturate},
};

int usage() {
  std::fprintf(stderr,
               "usage: bench_client [--quick | --row NAME SECONDS] GROUP [WORD...]\n  groups:");
  for (const auto& [name, measure] : kOnStage) std::fprintf(stderr, " %s", name.c_str());
  for (const auto& [name, measure] : kAlone) std::fprintf(stderr, " %s", name.c_str());
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace

void* driver_function(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* found = library == nullptr ? nullptr : dlsym(library, name);
  if (found != nullptr) return found;
  std::fprintf(stderr, "bench_client: %s\n", dlerror());
  std::exit(1);
}

SmallProgram run_small_program(const std::string& salt) {
  SmallProgram program;
  CUmodule module = nullptr;
  primary_context();
  const std::string text = "// " + salt + "\n" + kKernels;
  MUST(CU(cuModuleLoadData)(&module, text.c_str()));
  MUST(CU(cuModuleGetFunction)(&program.empty, module, "empty"));
  MUST(CU(cuModuleGetFunction)(&program.stamp, module, "stamp"));
  MUST(CU(cuStreamCreate)(&program.stream, CU_STREAM_DEFAULT));
  MUST(CU(cuMemAlloc_v2)(&program.memory, sizeof(std::uint64_t)));
  void* parameters[1] = {&program.memory};
  MUST(CU(cuLaunchKernel)(program.stamp, 1, 1, 1, 1, 1, 1, 0, program.stream, parameters, nullptr));
  std::uint64_t result = 0;
  MUST(CU(cuMemcpyDtoH_v2)(&result, program.memory, sizeof result));
  return program;
}

}  // namespace gpurun::bench

int main(int count, char** arguments) {
  using namespace gpurun::bench;
  Words words(arguments + 1, arguments + count);
  const bool quick = !words.empty() && words[0] == "--quick";
  if (quick) words.erase(words.begin());
  std::optional<Repetition> repeated;
  if (words.size() > 3 && words[0] == "--row") {
    repeated = Repetition{words[1], std::atof(words[2].c_str())};
    if (!(repeated->seconds > 0 && repeated->seconds <= 600)) return usage();
    words.erase(words.begin(), words.begin() + 3);
  }
  if (words.empty()) return usage();
  const std::string group = words[0];
  words.erase(words.begin());
  Results results(quick, repeated);
  if (const auto found = kOnStage.find(group); found != kOnStage.end() && words.empty()) {
    found->second(set_up(), &results);
  } else if (const auto alone = kAlone.find(group); alone != kAlone.end()) {
    alone->second(words, &results);
  } else {
    return usage();
  }
  if (!results.complete()) {
    std::fprintf(stderr, "bench_client: no row '%s' of %s can be repeated\n", repeated->row.c_str(),
                 group.c_str());
    return 2;
  }
  results.print();
}
