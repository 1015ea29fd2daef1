// Runtime API: a loop like training. Each step has launches, copies in, events, and as many results
// read as its argument says. Prints the time of the steps, for tests of round trips.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/support/cuda.h"

__global__ void accumulate(float* weights, const float* batch, unsigned count, float rate) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) weights[i] += rate * batch[i];
}
__global__ void first_of(const float* weights, float* result) { *result = weights[0]; }

int main(int argc, char** argv) {
  if (argc != 3) return 2;  // Steps, results read in each.
  const int steps = std::atoi(argv[1]), reads = std::atoi(argv[2]);
  constexpr unsigned kCount = 4096;
  float *weights, *batch, *result;
  MUST(cudaMalloc(&weights, kCount * 4));
  MUST(cudaMalloc(&batch, kCount * 4));
  MUST(cudaMalloc(&result, 4));
  MUST(cudaMemset(weights, 0, kCount * 4));
  std::vector<float> host(kCount, 1.0f);
  cudaStream_t side;
  MUST(cudaStreamCreate(&side));
  cudaEvent_t ready;
  MUST(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  float value = 0;
  auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step <= steps; ++step) {
    if (step == 1) begin = std::chrono::steady_clock::now();  // The first one loads the kernels.
    MUST(cudaMemcpyAsync(batch, host.data(), kCount * 4, cudaMemcpyHostToDevice, side));
    MUST(cudaEventRecord(ready, side));
    MUST(cudaStreamWaitEvent(nullptr, ready, 0));
    accumulate<<<kCount / 256, 256>>>(weights, batch, kCount, 1.0f);
    first_of<<<1, 1>>>(weights, result);
    MUST(cudaGetLastError());
    // The first step is always read, so that it is over when the measured time begins.
    for (int i = 0; i < (step == 0 ? 1 : reads); ++i)
      MUST(cudaMemcpy(&value, result, 4, cudaMemcpyDeviceToHost));
  }
  MUST(cudaMemcpy(&value, result, 4, cudaMemcpyDeviceToHost));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  if (value != static_cast<float>(steps + 1)) {
    std::printf("FAILED: %f\n", static_cast<double>(value));
    return 1;
  }
  std::printf("took %.3f ms\n", took.count());
  std::printf("PASSED\n");
  return 0;
}
