// Runtime API: reuse of memory. Memory that is freed while a kernel still writes to it is not
// reused before the kernel is done. cudaFree waits for the device. gpurun answers it early, so it
// must hold the memory back.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "tests/support/cuda.h"

// Runs long enough that everything else of a round has happened, then writes.
__global__ void write_late(unsigned char* to, unsigned count, unsigned turns) {
  unsigned value = 1;
  for (unsigned i = 0; i < turns; ++i) value = value * 1664525u + 1013904223u;
  for (unsigned i = 0; i < count; ++i) to[i] = value == 0 ? 2 : 1;
}

int main() {
  constexpr unsigned kBytes = 4096, kTurns = 30'000'000;
  cudaStream_t busy, other;
  MUST(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
  MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  std::vector<unsigned char> host(kBytes);
  for (int round = 0; round < 3; ++round) {
    unsigned char *old = nullptr, *fresh = nullptr;
    MUST(cudaMalloc(&old, kBytes));
    write_late<<<1, 1, 0, busy>>>(old, kBytes, kTurns);
    MUST(cudaGetLastError());
    MUST(cudaFree(old));
    MUST(cudaMalloc(&fresh, kBytes));
    MUST(cudaMemsetAsync(fresh, 7, kBytes, other));
    MUST(cudaStreamSynchronize(other));
    MUST(cudaStreamSynchronize(busy));
    MUST(cudaMemcpy(host.data(), fresh, kBytes, cudaMemcpyDeviceToHost));
    for (const unsigned char byte : host) {
      if (byte == 7) continue;
      std::printf("FAILED: round %d: a kernel wrote %d into memory that was not its own\n", round,
                  byte);
      return 1;
    }
    MUST(cudaFree(fresh));
  }
  std::printf("PASSED\n");
  return 0;
}
