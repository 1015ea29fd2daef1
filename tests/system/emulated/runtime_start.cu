// Runtime start: a program of CUDA's runtime without a kernel, written without knowledge of gpurun.
// Uses devices, memory, copies and streams. Prints "ok" and exits with 0 when every answer is
// right.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#define CHECK(call)                                                             \
  do {                                                                          \
    const cudaError_t error = (call);                                           \
    if (error != cudaSuccess) {                                                 \
      std::printf("%s: %d %s\n", #call, int(error), cudaGetErrorString(error)); \
      return 1;                                                                 \
    }                                                                           \
  } while (false)

int main() {
  int devices = 0, version = 0;
  CHECK(cudaGetDeviceCount(&devices));
  CHECK(cudaDriverGetVersion(&version));
  if (devices != 2 || version < 12000) return 2;
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 1));
  if (properties.warpSize != 32 || properties.totalGlobalMem == 0) return 3;

  constexpr size_t kCount = 1 << 20;
  for (int device = 0; device < devices; ++device) {
    CHECK(cudaSetDevice(device));
    std::vector<int> out(kCount), back(kCount, -1);
    for (size_t i = 0; i < kCount; ++i) out[i] = int(i) * 3 + device;
    int *first = nullptr, *second = nullptr;
    CHECK(cudaMalloc(&first, kCount * sizeof(int)));
    CHECK(cudaMalloc(&second, kCount * sizeof(int)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpyAsync(first, out.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(second, first, kCount * sizeof(int), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(back.data(), second, kCount * sizeof(int), cudaMemcpyDeviceToHost));
    if (back != out) return 4;
    CHECK(cudaMemset(second, 0x11, 64));
    CHECK(cudaMemcpy(back.data(), second, 64, cudaMemcpyDeviceToHost));
    if (back[15] != 0x11111111 || back[16] != out[16]) return 5;
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(first));
    CHECK(cudaFree(second));
    // The runtime's state ends with the context and is created again.
    CHECK(cudaDeviceReset());
    CHECK(cudaMalloc(&first, 64));
    CHECK(cudaDeviceSynchronize());
  }
  if (cudaFree(reinterpret_cast<void*>(0x1234)) != cudaErrorInvalidValue) return 6;
  std::puts("ok");
  return 0;
}
