// Converged lanes, as nvcc compiles them: programs count with one atomic for each coalesced group,
// and sum through volatile shared memory without __syncwarp().
#include <cooperative_groups.h>

#include <cstdio>

namespace {

__device__ int append(int* count) {
  const auto group = cooperative_groups::coalesced_threads();
  int first = 0;
  if (group.thread_rank() == 0) first = atomicAdd(count, static_cast<int>(group.size()));
  return group.shfl(first, 0) + static_cast<int>(group.thread_rank());
}

// Eight lanes append to each of four lists, in a pass of their own.
__global__ void append_in_passes(int* counts, int* lists) {
#pragma unroll 1
  for (int pass = 0; pass < 4; ++pass) {
    if (threadIdx.x / 8 == static_cast<unsigned>(pass)) {
      lists[pass * 32 + append(counts + pass)] = static_cast<int>(threadIdx.x);
    }
  }
}

template <class T>
__device__ void sum_of_warp(volatile T* values, unsigned lane) {
#pragma unroll
  for (unsigned by = 32; by > 0; by /= 2) values[lane] += values[lane + by];
}

template <class T>
__global__ void sum(T* out) {
  __shared__ volatile T values[64];
  values[threadIdx.x] = static_cast<T>(threadIdx.x);
  __syncthreads();
  if (threadIdx.x < 32) sum_of_warp(values, threadIdx.x);
  if (threadIdx.x == 0) *out = values[0];
}

// Each lane finds the next lane with that value, through generic pointers that a function receives.
__device__ __noinline__ int neighbour(volatile int* mine, volatile int* other, int value) {
  *mine = value;
  return *other;
}
__global__ void rotate(int* out) {
  __shared__ int values[32];
  int value = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int round = 0; round < 7; ++round) {
    value = neighbour(values + threadIdx.x, values + (threadIdx.x + 1) % 32, value);
  }
  out[threadIdx.x] = value;
}

int faults = 0;
void expect(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++faults;
}

}  // namespace

int main() {
  int* memory = nullptr;
  if (cudaMallocManaged(&memory, 4096) != cudaSuccess) return 1;
  append_in_passes<<<1, 32>>>(memory, memory + 8);
  expect(cudaDeviceSynchronize() == cudaSuccess, "the lists");
  for (int pass = 0; pass < 4; ++pass) {
    expect(memory[pass] == 8, "a list's length");
    unsigned found = 0;
    for (int i = 0; i < 8; ++i) found |= 1u << memory[8 + pass * 32 + i];
    expect(found == 0xffu << (8 * pass), "a list's members");
  }
  sum<<<1, 64>>>(reinterpret_cast<float*>(memory));
  sum<<<1, 64>>>(reinterpret_cast<double*>(memory + 2));
  sum<<<1, 64>>>(reinterpret_cast<short*>(memory + 4));
  expect(cudaDeviceSynchronize() == cudaSuccess, "the sums");
  expect(*reinterpret_cast<float*>(memory) == 2016, "the sum of floats");
  expect(*reinterpret_cast<double*>(memory + 2) == 2016, "the sum of doubles");
  expect(*reinterpret_cast<short*>(memory + 4) == 2016, "the sum of shorts");
  rotate<<<1, 32>>>(memory);
  expect(cudaDeviceSynchronize() == cudaSuccess, "the rounds");
  for (int i = 0; i < 32; ++i) expect(memory[i] == (i + 7) % 32, "a neighbour's value");
  if (faults == 0) std::puts("ok");
  return faults != 0;
}
