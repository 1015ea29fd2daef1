// Runtime API: a program built for one GPU alone (no PTX), and its errors on another.
#include <cuda_runtime.h>

#include <cstdio>

__global__ void nothing() {}

int main() {
  cudaFuncAttributes attributes;
  std::printf("attributes: %s\n", cudaGetErrorName(cudaFuncGetAttributes(&attributes, nothing)));
  cudaGetLastError();
  nothing<<<1, 1>>>();
  std::printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
  std::printf("no error is left: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  return 0;
}
