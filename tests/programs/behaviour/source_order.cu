// Runtime API: source order. An asynchronous copy from host memory reads the bytes that earlier
// work of its stream has written there: a copy out of the device, or a function of the host.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/cuda.h"

constexpr unsigned kBytes = 64 << 10, kTurns = 10'000'000;

// Runs long enough that the program has made all its calls, then writes.
__global__ void write_late(unsigned char* to, unsigned count, unsigned turns) {
  unsigned value = 1;
  for (unsigned i = 0; i < turns; ++i) value = value * 1664525u + 1013904223u;
  for (unsigned i = 0; i < count; ++i) to[i] = value == 0 ? 2 : 1;
}

static void fill_with_sevens(void* memory) { std::memset(memory, 7, kBytes); }

static void expect(const unsigned char* device, unsigned char wanted, const char* what) {
  static unsigned char host[kBytes];
  MUST(cudaMemcpy(host, device, kBytes, cudaMemcpyDeviceToHost));
  for (const unsigned char byte : host) {
    if (byte == wanted) continue;
    std::printf("FAILED: the copy took %d, not %d, %s\n", byte, wanted, what);
    std::exit(1);
  }
}

int main() {
  cudaStream_t stream, other;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  cudaEvent_t written;
  MUST(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
  unsigned char *from = nullptr, *to = nullptr, *pinned = nullptr;
  MUST(cudaMalloc(&from, kBytes));
  MUST(cudaMalloc(&to, kBytes));
  MUST(cudaMallocHost(&pinned, kBytes));

  std::memset(pinned, 9, kBytes);
  write_late<<<1, 1, 0, stream>>>(from, kBytes, kTurns);
  MUST(cudaMemcpyAsync(pinned, from, kBytes, cudaMemcpyDeviceToHost, stream));
  MUST(cudaMemcpyAsync(to, pinned, kBytes, cudaMemcpyHostToDevice, stream));
  MUST(cudaStreamSynchronize(stream));
  expect(to, 1, "after a copy out in its stream");

  std::memset(pinned, 9, kBytes);
  write_late<<<1, 1, 0, stream>>>(from, kBytes, kTurns);
  MUST(cudaMemcpyAsync(pinned, from, kBytes, cudaMemcpyDeviceToHost, stream));
  MUST(cudaEventRecord(written, stream));
  MUST(cudaStreamWaitEvent(other, written, 0));
  MUST(cudaMemcpyAsync(to, pinned, kBytes, cudaMemcpyHostToDevice, other));
  MUST(cudaStreamSynchronize(other));
  expect(to, 1, "after a copy out in another stream whose event its own waits for");

  std::memset(pinned, 9, kBytes);
  write_late<<<1, 1, 0, stream>>>(from, kBytes, kTurns);
  MUST(cudaLaunchHostFunc(stream, &fill_with_sevens, pinned));
  MUST(cudaMemcpyAsync(to, pinned, kBytes, cudaMemcpyHostToDevice, stream));
  MUST(cudaStreamSynchronize(stream));
  expect(to, 7, "after a host function in its stream");

  std::printf("PASSED\n");
  return 0;
}
