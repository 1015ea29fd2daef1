// Runtime API: a failed device assertion prints its place to stderr, for each thread in which it
// fails. Every later call returns the error until the device is reset. Earlier output is kept.
#include <cuda_runtime.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <thread>

__global__ void in_range(int end) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at == 0) printf("kernel: all below %d\n", end);
  assert(at < end);
}

namespace {

void show(const char* what, cudaError_t code) {
  std::printf("%s: %s\n", what, cudaGetErrorName(code));
}

void try_all(const char* who, void* memory) {
  std::printf("-- %s\n", who);
  int word = 0;
  void* more = nullptr;
  show("copy out", cudaMemcpy(&word, memory, sizeof word, cudaMemcpyDeviceToHost));
  show("allocate", cudaMalloc(&more, 16));
  in_range<<<1, 1>>>(1);
  show("launch", cudaGetLastError());
  show("wait", cudaDeviceSynchronize());
  show("free", cudaFree(memory));
}

}  // namespace

int main() {
  void* memory = nullptr;
  show("allocate", cudaMalloc(&memory, 16));
  in_range<<<1, 32>>>(32);
  show("one that holds", cudaDeviceSynchronize());
  std::printf("host: now one that fails\n");
  in_range<<<1, 32>>>(28);
  show("launch", cudaGetLastError());
  show("wait", cudaDeviceSynchronize());
  std::printf("host: after it\n");
  try_all("this thread", memory);
  std::thread([memory] { try_all("another thread", memory); }).join();
  show("reset", cudaDeviceReset());
  show("allocate", cudaMalloc(&memory, 16));
  in_range<<<1, 32>>>(32);
  show("one that holds", cudaDeviceSynchronize());
  std::printf("PASSED\n");
  return 0;
}
