// A program of a user for packaging/client/cycle: adds vectors, and compares with the host.
#include <cstdio>
#include <vector>

__global__ void add(const float* a, const float* b, float* sum, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

int main() {
  constexpr int kCount = 50000;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  std::vector<float> a(kCount), b(kCount), sum(kCount);
  for (int i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(i % 7);
  }
  float* device[3] = {};
  for (float*& memory : device) {
    if (const cudaError_t error = cudaMalloc(&memory, kBytes); error != cudaSuccess) {
      std::printf("cudaMalloc: %s\n", cudaGetErrorString(error));
      return 1;
    }
  }
  cudaMemcpy(device[0], a.data(), kBytes, cudaMemcpyHostToDevice);
  cudaMemcpy(device[1], b.data(), kBytes, cudaMemcpyHostToDevice);
  add<<<(kCount + 255) / 256, 256>>>(device[0], device[1], device[2], kCount);
  if (const cudaError_t error = cudaMemcpy(sum.data(), device[2], kBytes, cudaMemcpyDeviceToHost);
      error != cudaSuccess) {
    std::printf("cudaMemcpy: %s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0; i < kCount; ++i) {
    if (sum[i] != a[i] + b[i]) {
      std::printf("sum %d is %f\n", i, static_cast<double>(sum[i]));
      return 1;
    }
  }
  std::printf("Test PASSED\n");
  return 0;
}
