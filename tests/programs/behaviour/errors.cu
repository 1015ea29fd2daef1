// Runtime API: what wrong calls answer, and that a fault in a kernel stays for good.
#include <cuda_runtime.h>

#include <cstdio>

__global__ void write_to(unsigned* address) { *address = 1; }
__global__ void assert_even(unsigned value) {
  if (value % 2 != 0) __trap();
}

static void say(const char* what, cudaError_t code) {
  std::printf("%s: %s\n", what, cudaGetErrorName(code));
}

int main() {
  void* memory = nullptr;
  say("huge allocation", cudaMalloc(&memory, size_t{1} << 50));
  say("last error", cudaGetLastError());
  say("last error again", cudaGetLastError());
  say("free of nonsense", cudaFree(reinterpret_cast<void*>(0x1234)));
  cudaGetLastError();
  say("bad device", cudaSetDevice(12345));
  cudaGetLastError();
  say("null result", cudaMalloc(nullptr, 16));
  cudaGetLastError();
  write_to<<<1, 2000>>>(nullptr);
  say("too many threads", cudaGetLastError());
  write_to<<<0, 1>>>(nullptr);
  say("empty grid", cudaGetLastError());
  write_to<<<1, 1, 1 << 30>>>(nullptr);
  say("too much shared memory", cudaGetLastError());
  cudaEvent_t event;
  say("event", cudaEventCreate(&event));
  float milliseconds;
  say("elapsed of nothing", cudaEventElapsedTime(&milliseconds, event, event));
  cudaGetLastError();
  say("copy beyond", cudaMemcpy(reinterpret_cast<void*>(0x10), reinterpret_cast<void*>(0x20), 4,
                                cudaMemcpyDeviceToDevice));
  cudaGetLastError();
  assert_even<<<1, 1>>>(2);
  say("even", cudaDeviceSynchronize());
  unsigned* nowhere = nullptr;
  write_to<<<1, 1>>>(nowhere);
  say("launch of the fault", cudaGetLastError());
  say("fault", cudaDeviceSynchronize());
  say("afterwards", cudaMalloc(&memory, 16));
  say("afterwards, synchronise", cudaDeviceSynchronize());
  say("reset", cudaDeviceReset());
  say("after the reset", cudaMalloc(&memory, 16));
  assert_even<<<1, 1>>>(3);
  say("trap", cudaDeviceSynchronize());
  std::printf("PASSED\n");
  return 0;
}
