// copy_client: a CUDA program that copies bytes to the device and back, and compares them. It knows
// nothing of gpurun. usage: copy_client ROUNDS BYTES. Prints "right", or the first wrong place.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const unsigned long rounds = std::strtoul(argv[1], nullptr, 10);
  const std::size_t bytes = std::strtoul(argv[2], nullptr, 10);
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  MUST(cuInit(0));
  MUST(cuCtxCreate_v4(&context, nullptr, 0, 0));
  MUST(cuMemAlloc_v2(&memory, bytes));
  std::vector<unsigned char> sent(bytes);
  std::vector<unsigned char> got(bytes);
  for (unsigned long round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < bytes; ++i) {
      sent[i] = static_cast<unsigned char>(i * 131 + i / 251 + round * 7);
    }
    MUST(cuMemcpyHtoD_v2(memory, sent.data(), bytes));
    MUST(cuMemcpyDtoH_v2(got.data(), memory, bytes));
    for (std::size_t i = 0; i < bytes; ++i) {
      if (got[i] == sent[i]) continue;
      std::printf("round %lu: byte %zu is wrong\n", round, i);
      return 1;
    }
  }
  MUST(cuMemFree_v2(memory));
  MUST(cuCtxDestroy_v2(context));
  std::puts("right");
  return 0;
}
