// Runtime API: many threads, each with its own stream and memory. Only the right order gives the
// right results. Built also with per-thread default streams.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "tests/support/cuda.h"

__global__ void step(unsigned* values, unsigned count, unsigned factor) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = values[i] * factor + i;
}

static std::atomic<int> failures{0};

static void work(unsigned seed, bool own_stream) {
  constexpr unsigned kCount = 5000, kSteps = 40;
  cudaStream_t stream = nullptr;
  if (own_stream) MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  unsigned* device = nullptr;
  MUST(cudaMalloc(&device, kCount * sizeof(unsigned)));
  std::vector<unsigned> host(kCount), expected(kCount);
  for (unsigned i = 0; i < kCount; ++i) host[i] = expected[i] = i + seed;
  MUST(cudaMemcpyAsync(device, host.data(), kCount * 4, cudaMemcpyHostToDevice, stream));
  for (unsigned round = 0; round < kSteps; ++round) {
    step<<<(kCount + 127) / 128, 128, 0, stream>>>(device, kCount, seed + round);
    for (unsigned i = 0; i < kCount; ++i) expected[i] = expected[i] * (seed + round) + i;
  }
  MUST(cudaGetLastError());
  MUST(cudaMemcpyAsync(host.data(), device, kCount * 4, cudaMemcpyDeviceToHost, stream));
  MUST(cudaStreamSynchronize(stream));
  if (host != expected) {
    std::printf("FAILED: thread %u has wrong values\n", seed);
    failures++;
  }
  MUST(cudaFree(device));
  if (own_stream) MUST(cudaStreamDestroy(stream));
}

int main() {
  for (bool own_stream : {true, false}) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 16; ++i) threads.emplace_back(work, i + 1, own_stream);
    for (std::thread& thread : threads) thread.join();
  }
  // Short-lived threads.
  for (unsigned i = 0; i < 200; ++i) std::thread(work, i % 7 + 1, false).join();
  std::printf(failures == 0 ? "PASSED\n" : "FAILED\n");
  return failures == 0 ? 0 : 1;
}
