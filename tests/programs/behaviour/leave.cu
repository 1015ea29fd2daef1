// Runtime API: a program that leaves without cleaning up, in the way that its argument names, with
// work in progress. In no case may anything hang, and the exit status is the program's.
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

__global__ void spin(unsigned* out, unsigned rounds) {
  unsigned value = threadIdx.x;
  for (unsigned i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
  out[threadIdx.x] = value;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  unsigned* out = nullptr;
  if (cudaMalloc(&out, 4096) != cudaSuccess) return 1;
  cudaStream_t stream;
  if (cudaStreamCreate(&stream) != cudaSuccess) return 1;
  spin<<<1, 64, 0, stream>>>(out, 1000);
  if (cudaStreamSynchronize(stream) != cudaSuccess) return 1;
  for (int i = 0; i < 50; ++i) spin<<<1, 64, 0, stream>>>(out, 10000);
  std::printf("ready\n");
  std::fflush(stdout);
  const char* how = argv[1];
  if (std::strcmp(how, "return") == 0) return 7;
  if (std::strcmp(how, "exit") == 0) std::exit(7);
  if (std::strcmp(how, "_exit") == 0) _exit(7);
  if (std::strcmp(how, "quick_exit") == 0) std::quick_exit(7);
  if (std::strcmp(how, "abort") == 0) std::abort();
  if (std::strcmp(how, "thread") == 0) {
    std::thread([] { std::exit(7); }).join();
  }
  if (std::strcmp(how, "destructor") == 0) {
    static struct Late {
      ~Late() { cudaDeviceSynchronize(); }
    } late;
    return 7;
  }
  return 2;
}
