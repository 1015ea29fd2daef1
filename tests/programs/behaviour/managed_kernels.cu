// Managed kernels: device code with managed variables, for managed_variables.cc. nvcc makes a fat
// binary of it.
extern "C" {

__managed__ unsigned counter = 7;
__managed__ unsigned char letter = 'a';
__managed__ unsigned table[40000];  // More than what is polled as a flag.
__managed__ unsigned flags[2];
__managed__ unsigned late;
__device__ unsigned own = 5;

// Each launch reads what the host has left in the variables.
__global__ void advance(unsigned what) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 40000) table[i] += what + i;
  if (i != 0) return;
  counter += what + own;
  ++letter;
}

// Writes after about a tenth of a second.
__global__ void write_late(unsigned turns, unsigned what) {
  unsigned mixed = 1;
  for (unsigned i = 0; i < turns; ++i) mixed = mixed * 1664525u + 1013904223u;
  late = mixed == 0 ? ~what : what;
}

// Waits until the host sets the first flag, and then sets the second one.
__global__ void answer() {
  while (*static_cast<volatile unsigned*>(flags) == 0) {
  }
  flags[1] = flags[0] + 1;
}

}  // extern "C"
