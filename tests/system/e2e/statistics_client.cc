// statistics_client: a CUDA program of known calls, for the tests of statistics and of the trace.
// It knows nothing of gpurun. usage: statistics_client ROUNDS [how]. In each of ROUNDS rounds it
// launches observed_first in one stream and observed_second in another, and reads 4 bytes. `how`
// selects its end:
//   exit (default)   returns everything first.
//   leave            calls _exit() at once.
//   killed           by SIGKILL.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"

namespace {

constexpr const char* kImage = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry observed_first(.param .u64 where, .param .u32 value)
{
  .reg .u64 %a;
  .reg .u32 %v;
  ld.param.u64 %a, [where];
  ld.param.u32 %v, [value];
  st.global.u32 [%a], %v;
  ret;
}
.visible .entry observed_second(.param .u64 where, .param .u32 value)
{
  .reg .u64 %a;
  .reg .u32 %v;
  ld.param.u64 %a, [where];
  ld.param.u32 %v, [value];
  st.global.u32 [%a+4], %v;
  ret;
}
)";

void launch(CUfunction function, CUstream stream, CUdeviceptr where, unsigned value) {
  void* parameters[] = {&where, &value};
  MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)) : 1;
  const std::string how = argc > 2 ? argv[2] : "exit";
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction first = nullptr;
  CUfunction second = nullptr;
  CUstream streams[2] = {};
  CUdeviceptr memory = 0;
  MUST(cuInit(0));
  MUST(cuCtxCreate_v4(&context, nullptr, 0, 0));
  MUST(cuModuleLoadData(&module, kImage));
  MUST(cuModuleGetFunction(&first, module, "observed_first"));
  MUST(cuModuleGetFunction(&second, module, "observed_second"));
  for (CUstream& stream : streams) MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc_v2(&memory, 8));
  for (unsigned round = 0; round < rounds; ++round) {
    launch(first, streams[0], memory, round);
    launch(second, streams[1], memory, round);
    unsigned result = 0;
    MUST(cuMemcpyDtoH_v2(&result, memory, sizeof result));
  }
  if (how == "leave") _exit(0);
  if (how == "killed") std::raise(SIGKILL);
  for (CUstream& stream : streams) MUST(cuStreamDestroy_v2(stream));
  MUST(cuMemFree_v2(memory));
  MUST(cuModuleUnload(module));
  MUST(cuCtxDestroy_v2(context));
  std::puts("done");
  return 0;
}
