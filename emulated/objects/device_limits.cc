// The limits of NVIDIA's devices, by compute capability.
#include "emulated/objects/device_limits.h"

namespace gpurun::emulated {

int shared_bytes_per_block_optin(int capability) {
  if (capability >= 90 && capability < 120) return 227 << 10;
  if (capability == 80 || capability == 87) return 163 << 10;
  if (capability < 80) return capability >= 75 ? 64 << 10 : 96 << 10;
  return 99 << 10;
}

int threads_per_multiprocessor(int capability) {
  if (capability >= 75 && capability < 80) return 1024;
  if (capability == 80 || (capability >= 90 && capability < 120) || capability < 75) return 2048;
  return 1536;
}

int blocks_per_multiprocessor(int capability) {
  if (capability < 75 || capability == 80 || (capability >= 90 && capability < 120)) return 32;
  return capability < 80 ? 16 : 24;
}

}  // namespace gpurun::emulated
