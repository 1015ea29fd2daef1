// Kernels: device code of the driver-API programs. nvcc makes a fat binary and PTX of it.
#include <cstdio>

extern "C" {

__constant__ float scale_of_all = 1.0f;
__device__ unsigned long long visits = 0;

__global__ void add(const float* a, const float* b, float* sum, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = scale_of_all * (a[i] + b[i]);
}

__global__ void fill(unsigned* out, unsigned count, unsigned value) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = value + i;
  if (threadIdx.x == 0) atomicAdd(&visits, 1ull);
}

// Waits until *flag is not 0, then stores the value that it saw.
__global__ void wait_for(volatile unsigned* flag, unsigned* seen) {
  while (*flag == 0) {
  }
  *seen = *flag;
}

// Runs long enough that its program has made further calls, then writes.
__global__ void linger(unsigned turns, unsigned* to, unsigned value) {
  unsigned mixed = 1;
  for (unsigned i = 0; i < turns; ++i) mixed = mixed * 1664525u + 1013904223u;
  *to = mixed == 0 ? ~value : value;
}

// Adds one to each value of the buffer.
__global__ void pass_on(unsigned* values, unsigned count) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    ++values[i];
  }
}

// Every parameter form that a launch must carry: small, large, by value, unaligned sizes.
struct Mixed {
  char letter;
  double number;
  short words[5];
};
__global__ void parameters(char c, double d, struct Mixed mixed, short s, unsigned long long* out) {
  out[0] = static_cast<unsigned long long>(c);
  out[1] = static_cast<unsigned long long>(d);
  out[2] = static_cast<unsigned long long>(mixed.letter);
  out[3] = static_cast<unsigned long long>(mixed.number);
  out[4] = static_cast<unsigned long long>(mixed.words[4]);
  out[5] = static_cast<unsigned long long>(s);
}

// Sums a block's values in dynamic shared memory.
__global__ void block_sum(const unsigned* in, unsigned* out) {
  extern __shared__ unsigned values[];
  values[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = values[0];
}

__global__ void say(int number) { printf("kernel %d\n", number); }

__global__ void write_to(unsigned* address) { *address = 1; }

}  // extern "C"
