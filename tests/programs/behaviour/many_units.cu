// Runtime API: kernels of twelve translation units. nvcc gives each an image of its own, which is
// loaded at its first launch. Then reads one result. For the test of the cost of a start.
#include <cuda_runtime.h>

#include <cstdio>

#include "tests/support/cuda.h"

#define FOR_EACH_UNIT(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define DECLARE(unit) void run_##unit(unsigned* sum);
FOR_EACH_UNIT(DECLARE)

int main() {
  unsigned *sum, result = 0;
  MUST(cudaMalloc(&sum, sizeof *sum));
  MUST(cudaMemset(sum, 0, sizeof *sum));
#define RUN(unit) run_##unit(sum);
  FOR_EACH_UNIT(RUN)
  MUST(cudaGetLastError());
  MUST(cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDeviceToHost));
  const bool good = result == 3u * 78;
  std::printf(good ? "PASSED\n" : "FAILED: %u\n", result);
  return good ? 0 : 1;
}
