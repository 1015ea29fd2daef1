// Runtime API: launches of many different kernels, as many as its argument says (at most 200), then
// one read result. For the test that start-up costs the same for each number of kernels.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/support/cuda.h"

template <int kNumber>
__global__ void add_one_of(unsigned* sum, unsigned) {
  atomicAdd(sum, kNumber + 1u);
}

using Kernel = void (*)(unsigned*, unsigned);

template <int... kNumbers>
static Kernel kernel_of(int number, std::integer_sequence<int, kNumbers...>) {
  static const Kernel all[] = {add_one_of<kNumbers>...};
  return all[number];
}

int main(int argc, char** argv) {
  const int count = argc == 2 ? std::atoi(argv[1]) : 0;
  if (count < 1 || count > 200) return 2;
  unsigned *sum, result = 0;
  MUST(cudaMalloc(&sum, sizeof *sum));
  MUST(cudaMemset(sum, 0, sizeof *sum));
  for (int i = 0; i < count; ++i) {
    kernel_of(i, std::make_integer_sequence<int, 200>())<<<1, 1>>>(sum, 0u);
  }
  MUST(cudaGetLastError());
  MUST(cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDeviceToHost));
  const bool good = result == static_cast<unsigned>(count) * (count + 1) / 2;
  std::printf(good ? "PASSED\n" : "FAILED: %u\n", result);
  return good ? 0 : 1;
}
