// neighbour: an honest program that computes until its input ends, and checks each result. It
// prints "ready" after the first result, and the number of results at the end. Exit status 0: all
// were right.
#include <poll.h>

#include <cstdio>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"

namespace {

constexpr const char* kPtx =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry add(.param .u64 of, .param .u32 more)\n{\n"
    ".reg .b64 %a, %o;\n.reg .b32 %i, %b, %n, %v, %m;\n"
    "ld.param.u64 %a, [of];\nld.param.u32 %m, [more];\n"
    "mov.u32 %i, %ctaid.x;\nmov.u32 %n, %ntid.x;\nmov.u32 %b, %tid.x;\n"
    "mad.lo.u32 %i, %i, %n, %b;\nmul.wide.u32 %o, %i, 4;\nadd.s64 %a, %a, %o;\n"
    "ld.global.u32 %v, [%a];\nadd.u32 %v, %v, %m;\nadd.u32 %v, %v, %i;\n"
    "st.global.u32 [%a], %v;\nret;\n}\n";

constexpr unsigned kCount = 16'384;
// A pause between rounds, so that it is always there but leaves the machine to others.
constexpr int kPauseMs = 5;

bool told_to_end() {
  pollfd input = {0, POLLIN, 0};
  return poll(&input, 1, kPauseMs) > 0;
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction add = nullptr;
  CUdeviceptr memory = 0;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuModuleLoadData(&module, kPtx));
  MUST(cuModuleGetFunction(&add, module, "add"));
  MUST(cuMemAlloc_v2(&memory, kCount * sizeof(unsigned)));
  std::vector<unsigned> values(kCount);
  unsigned rounds = 0;
  for (; rounds == 0 || !told_to_end(); ++rounds) {
    for (unsigned i = 0; i < kCount; ++i) values[i] = i * rounds;
    unsigned more = rounds;
    void* arguments[] = {&memory, &more};
    MUST(cuMemcpyHtoD_v2(memory, values.data(), kCount * sizeof(unsigned)));
    MUST(cuLaunchKernel(add, kCount / 256, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
    MUST(cuMemcpyDtoH_v2(values.data(), memory, kCount * sizeof(unsigned)));
    for (unsigned i = 0; i < kCount; ++i) {
      if (values[i] != i * rounds + rounds + i) {
        std::printf("WRONG: round %u, value %u is %u\n", rounds, i, values[i]);
        return 1;
      }
    }
    if (rounds == 0) std::puts("ready");
    std::fflush(stdout);
  }
  std::printf("%u\n", rounds);
  return 0;
}
