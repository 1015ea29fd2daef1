// Runtime API: device printf reaches the program's stdout before the flushing synchronise returns,
// in order with the program's own output. Remaining output appears at the program's end.
#include <cuda_runtime.h>

#include <cstdio>

#include "tests/support/cuda.h"

__global__ void speak(int round) {
  if (threadIdx.x == 0)
    printf("kernel %d of round %d: %s %5.2f %c %llx\n", 1, round, "text", 3.5, 'z', 255ull);
}

__global__ void count(int lines) {
  for (int i = 0; i < lines; ++i) printf("line %d of the last kernel, which nobody waits for\n", i);
}

int main(int argc, char**) {
  int* memory = nullptr;
  int word = 0;
  cudaStream_t stream;
  cudaEvent_t event;
  MUST(cudaMalloc(&memory, sizeof word));
  MUST(cudaStreamCreate(&stream));
  MUST(cudaEventCreate(&event));
  for (int round = 0; round < 3; ++round) {
    std::printf("host before %d\n", round);
    std::fflush(stdout);
    speak<<<1, 32>>>(round);
    MUST(cudaDeviceSynchronize());
    std::printf("host after %d\n", round);
    std::fflush(stdout);
  }
  // Without a flush: device and program write through one stdout.
  for (int round = 10; round < 15; ++round) {
    speak<<<1, 32>>>(round);
    MUST(cudaStreamSynchronize(nullptr));
    std::printf("host after the legacy stream\n");
    speak<<<1, 32, 0, stream>>>(round);
    MUST(cudaStreamSynchronize(stream));
    std::printf("host after a stream\n");
    speak<<<1, 32, 0, stream>>>(round);
    MUST(cudaEventRecord(event, stream));
    MUST(cudaEventSynchronize(event));
    std::printf("host after an event\n");
    speak<<<1, 32>>>(round);
    MUST(cudaMemcpy(&word, memory, sizeof word, cudaMemcpyDeviceToHost));
    std::printf("host after a copy\n");
  }
  std::printf("PASSED\n");
  if (argc > 1) {
    speak<<<1, 32, 0, stream>>>(20);
    MUST(cudaDeviceReset());
    std::printf("host after the reset\n");
    return 0;
  }
  count<<<1, 1>>>(300);
  return 0;
}
