// Runtime start: a program of CUDA's runtime without a kernel, written without knowledge of gpurun.
// Uses devices, memory, copies and streams. Prints "ok" and exits with 0 when every answer is
// right.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "tests/support/cuda.h"

int main() {
  int devices = 0, version = 0;
  MUST(cudaGetDeviceCount(&devices));
  MUST(cudaDriverGetVersion(&version));
  if (devices != 2 || version < 12000) return 2;
  cudaDeviceProp properties;
  MUST(cudaGetDeviceProperties(&properties, 1));
  if (properties.warpSize != 32 || properties.totalGlobalMem == 0) return 3;

  constexpr size_t kCount = 1 << 20;
  for (int device = 0; device < devices; ++device) {
    MUST(cudaSetDevice(device));
    std::vector<int> out(kCount), back(kCount, -1);
    for (size_t i = 0; i < kCount; ++i) out[i] = int(i) * 3 + device;
    int *first = nullptr, *second = nullptr;
    MUST(cudaMalloc(&first, kCount * sizeof(int)));
    MUST(cudaMalloc(&second, kCount * sizeof(int)));
    cudaStream_t stream;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaMemcpyAsync(first, out.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
    MUST(cudaMemcpyAsync(second, first, kCount * sizeof(int), cudaMemcpyDeviceToDevice, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemcpy(back.data(), second, kCount * sizeof(int), cudaMemcpyDeviceToHost));
    if (back != out) return 4;
    MUST(cudaMemset(second, 0x11, 64));
    MUST(cudaMemcpy(back.data(), second, 64, cudaMemcpyDeviceToHost));
    if (back[15] != 0x11111111 || back[16] != out[16]) return 5;
    MUST(cudaStreamDestroy(stream));
    MUST(cudaFree(first));
    MUST(cudaFree(second));
    // The runtime's state ends with the context and is created again.
    MUST(cudaDeviceReset());
    MUST(cudaMalloc(&first, 64));
    MUST(cudaDeviceSynchronize());
  }
  if (cudaFree(reinterpret_cast<void*>(0x1234)) != cudaErrorInvalidValue) return 6;
  std::puts("ok");
  return 0;
}
