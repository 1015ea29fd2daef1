// Managed memory: a program, written without knowledge of gpurun, in which the host and the kernels
// of two devices see the same variables and allocations. Prints "ok" when all is right. With an
// argument the host touches no variable and allocates no managed memory.
#include <cuda_runtime.h>

#include <cstdio>

#include "tests/support/cuda.h"

__managed__ int counter = 3;
__managed__ int table[64];
__managed__ float samples[1000] = {0.5f};
__device__ int own = 5;

__global__ void add(int what) {
  table[threadIdx.x] += what + static_cast<int>(threadIdx.x);
  if (threadIdx.x == 0) counter += what + own;
}
__global__ void read(int* out) { *out = counter; }
__global__ void sum_samples() {
  for (int i = 0; i < 999; ++i) samples[999] += samples[i];
}
__global__ void twice(int* values) { values[threadIdx.x] *= 2; }

// Each device's kernels continue from the values that the host and the other device left.
int variables(int devices) {
  EXPECT(counter == 3 && table[63] == 0);  // Before any call of ours.
  int expected = 3;
  for (int device = 0; device < devices; ++device) {
    MUST(cudaSetDevice(device));
    counter += 10;
    add<<<1, 64>>>(100);
    MUST(cudaGetLastError());
    MUST(cudaDeviceSynchronize());
    expected += 10 + 105;
    EXPECT(counter == expected);
    EXPECT(table[63] == (100 + 63) * (device + 1));
    cudaPointerAttributes attributes;
    MUST(cudaPointerGetAttributes(&attributes, &counter));
    EXPECT(attributes.type == cudaMemoryTypeManaged && attributes.devicePointer == &counter);
  }
  return 0;
}

int array() {
  for (int i = 1; i < 999; ++i) samples[i] = 2;
  sum_samples<<<1, 1>>>();
  MUST(cudaDeviceSynchronize());
  EXPECT(samples[0] == 0.5f && samples[999] == 0.5f + 2 * 998);
  return 0;
}

int allocations() {
  int* values = nullptr;
  MUST(cudaMallocManaged(&values, 64 * sizeof(int)));
  for (int i = 0; i < 64; ++i) values[i] = i;
  twice<<<1, 64>>>(values);
  MUST(cudaDeviceSynchronize());
  for (int i = 0; i < 64; ++i) EXPECT(values[i] == 2 * i);
  MUST(cudaFree(values));
  return 0;
}

int in_kernels_alone() {
  int *device = nullptr, host = 0;
  MUST(cudaMalloc(&device, sizeof(int)));
  add<<<1, 64>>>(100);
  read<<<1, 1>>>(device);
  MUST(cudaMemcpy(&host, device, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(host == 3 + 105);
  return 0;
}

int main(int argc, char**) {
  if (argc > 1) {
    if (in_kernels_alone() != 0) return 1;
  } else {
    int devices = 0;
    MUST(cudaGetDeviceCount(&devices));
    if (variables(devices) != 0 || array() != 0 || allocations() != 0) return 1;
  }
  std::puts("ok");
  return 0;
}
