// Runtime API: host function queue. A function of the host blocks a stream until this thread has
// made more calls than gpurun's worker queues without waiting for the program (64 MiB of them). Its
// end reaches the worker behind these calls. CUDA promises room for about a thousand launches.
// gpurun and its emulated device have more.
#include <cuda_runtime.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "tests/support/cuda.h"

// Each counts as more than 1 KiB.
constexpr int kCalls = 64 << 10;

struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
  int returned = 0;
};

static void wait_for_program(void* user) {
  auto* gate = static_cast<Gate*>(user);
  std::unique_lock<std::mutex> lock(gate->mutex);
  gate->opened.wait(lock, [gate] { return gate->open; });
  ++gate->returned;
}

int main() {
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  unsigned char* memory = nullptr;
  MUST(cudaMalloc(&memory, 1));
  Gate gate;
  MUST(cudaLaunchHostFunc(stream, &wait_for_program, &gate));
  for (int i = 1; i <= kCalls; ++i) MUST(cudaMemsetAsync(memory, i % 251, 1, stream));
  MUST(cudaLaunchHostFunc(stream, &wait_for_program, &gate));
  {
    const std::lock_guard<std::mutex> lock(gate.mutex);
    gate.open = true;
    gate.opened.notify_all();
  }
  MUST(cudaStreamSynchronize(stream));
  unsigned char last = 0;
  MUST(cudaMemcpy(&last, memory, 1, cudaMemcpyDeviceToHost));
  std::printf("%d functions, the last call wrote %d\n", gate.returned, last);
  const bool right = gate.returned == 2 && last == kCalls % 251;
  std::printf(right ? "PASSED\n" : "FAILED\n");
  return right ? 0 : 1;
}
