// Runtime API: device printf reaches the program's stdout before the synchronise that flushes it
// returns, and in order with the program's own output.
#include <cuda_runtime.h>

#include <cstdio>

__global__ void speak(int round) {
  if (threadIdx.x == 0)
    printf("kernel %d of round %d: %s %5.2f %c %llx\n", 1, round, "text", 3.5, 'z', 255ull);
}

int main() {
  for (int round = 0; round < 3; ++round) {
    std::printf("host before %d\n", round);
    std::fflush(stdout);
    speak<<<1, 32>>>(round);
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    std::printf("host after %d\n", round);
    std::fflush(stdout);
  }
  std::printf("PASSED\n");
  return 0;
}
