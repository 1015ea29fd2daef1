// CUDA_LAUNCH_BLOCKING=1: a launch returns when the kernel is done, and returns the kernel's error
// itself.
#include <cuda_runtime.h>

#include <cstdio>

__global__ void write_to(unsigned* address, unsigned rounds) {
  unsigned sum = 0;
  for (unsigned i = 0; i < rounds; ++i) sum = sum * 3 + i;
  *address = sum | 1;
}

int main() {
  unsigned *device = nullptr, *nowhere = nullptr;
  cudaStream_t stream;
  if (cudaMalloc(&device, 4) != cudaSuccess || cudaStreamCreate(&stream) != cudaSuccess) return 1;
  for (unsigned round = 0; round < 5; ++round) {
    write_to<<<1, 1, 0, stream>>>(device, 2'000'000);
    std::printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
    std::printf("query: %s\n", cudaGetErrorName(cudaStreamQuery(stream)));
  }
  cudaGraph_t graph;
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) != cudaSuccess) return 1;
  write_to<<<1, 1, 0, stream>>>(device, 1);
  std::printf("captured launch: %s\n", cudaGetErrorName(cudaGetLastError()));
  std::printf("capture: %s\n", cudaGetErrorName(cudaStreamEndCapture(stream, &graph)));
  write_to<<<1, 1, 0, stream>>>(nowhere, 1);
  std::printf("launch of the fault: %s\n", cudaGetErrorName(cudaGetLastError()));
  return 0;
}
