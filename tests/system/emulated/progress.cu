// Forward progress: work that must run concurrently on a device. Kernels of two streams wait for
// each other. A kernel waits for a copy of another stream. The legacy stream imposes its order. A
// thread waits for what another one copies. A device that runs one grid after the other hangs here.
// Prints "ok".
#include <cuda_runtime.h>

#include <cstdio>
#include <thread>

#include "tests/support/cuda.h"

// Passes the turn to the other side and back, `rounds` times.
__global__ void exchange(volatile int* turns, int side, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    while (turns[0] != 2 * round + side) {
    }
    __threadfence();
    turns[0] = 2 * round + side + 1;
  }
}

__global__ void wait_for_flag(volatile int* flag, int* seen) {
  while (*flag == 0) {
  }
  *seen = *flag;
}

__global__ void wait_then_store(volatile int* flag, int* out) {
  while (*flag == 0) {
  }
  *out = 1;
}
__global__ void double_it(int* value) { *value = *value * 2 + 5; }

int main() {
  int* memory = nullptr;
  MUST(cudaMalloc(&memory, 1024));
  MUST(cudaMemset(memory, 0, 1024));
  cudaStream_t one, two, blocking;
  MUST(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  MUST(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  MUST(cudaStreamCreate(&blocking));
  MUST(cudaDeviceSynchronize());

  exchange<<<1, 1, 0, one>>>(memory, 0, 50);
  exchange<<<1, 1, 0, two>>>(memory, 1, 50);
  MUST(cudaDeviceSynchronize());
  int host = 0;
  MUST(cudaMemcpy(&host, memory, sizeof host, cudaMemcpyDeviceToHost));
  if (host != 100) return std::printf("exchange: %d\n", host), 1;

  int *flag = memory + 16, *seen = memory + 32, *pinned = nullptr;
  MUST(cudaMallocHost(&pinned, sizeof(int)));
  *pinned = 42;
  wait_for_flag<<<1, 1, 0, one>>>(flag, seen);
  MUST(cudaMemcpyAsync(flag, pinned, sizeof(int), cudaMemcpyHostToDevice, two));
  MUST(cudaStreamSynchronize(one));
  MUST(cudaMemcpy(&host, seen, sizeof host, cudaMemcpyDeviceToHost));
  if (host != 42) return std::printf("flag: %d\n", host), 1;

  // Blocking stream, then legacy stream, then the blocking stream again: each waits for the one
  // before, although the first one is blocked.
  int *gate = memory + 48, *value = memory + 64;
  wait_then_store<<<1, 1, 0, blocking>>>(gate, value);
  double_it<<<1, 1>>>(value);
  double_it<<<1, 1, 0, blocking>>>(value);
  if (cudaStreamQuery(nullptr) != cudaErrorNotReady) return std::puts("not held up"), 1;
  MUST(cudaMemcpyAsync(gate, pinned, sizeof(int), cudaMemcpyHostToDevice, two));
  MUST(cudaStreamSynchronize(blocking));
  MUST(cudaMemcpy(&host, value, sizeof host, cudaMemcpyDeviceToHost));
  if (host != (1 * 2 + 5) * 2 + 5) return std::printf("order: %d\n", host), 1;

  // A thread that waits for a stream does not keep another thread from releasing that stream. The
  // queries give it time to wait. If it waits late, the result is the same.
  int *gate_of_thread = memory + 80, *seen_by_thread = memory + 96;
  wait_for_flag<<<1, 1, 0, one>>>(gate_of_thread, seen_by_thread);
  cudaError_t waited = cudaErrorUnknown;
  std::thread waiter([&] { waited = cudaStreamSynchronize(one); });
  for (int i = 0; i < 1000; ++i) {
    if (cudaStreamQuery(one) != cudaErrorNotReady) return std::puts("not waiting"), 1;
  }
  MUST(cudaMemcpyAsync(gate_of_thread, pinned, sizeof(int), cudaMemcpyHostToDevice, two));
  waiter.join();
  MUST(waited);
  MUST(cudaMemcpy(&host, seen_by_thread, sizeof host, cudaMemcpyDeviceToHost));
  if (host != 42) return std::printf("thread: %d\n", host), 1;
  std::puts("ok");
  return 0;
}
