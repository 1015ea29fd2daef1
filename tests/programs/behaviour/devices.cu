// Runtime API: several devices. As many as were leased are visible, each computes and copies, and
// memory is copied between them, in order with the work of each.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/support/cuda.h"

constexpr int kCount = 64 << 10;

__global__ void fill(unsigned* values, unsigned salt, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = 3 * i + salt;
}

// As above, but after a delay.
__global__ void fill_late(unsigned* values, unsigned salt, int count) {
  unsigned spin = threadIdx.x;
  for (int i = 0; i < 200000; ++i) spin = spin * 1664525u + 1013904223u;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    values[i] = 3 * i + salt + (spin == 42 && count == 1 ? 1 : 0);
  }
}

static bool holds(const unsigned* device_values, unsigned salt) {
  std::vector<unsigned> host(kCount);
  MUST(cudaMemcpy(host.data(), device_values, kCount * sizeof(unsigned), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) {
    if (host[i] == 3u * i + salt) continue;
    std::printf("element %d is %u, not %u\n", i, host[i], 3 * i + salt);
    return false;
  }
  return true;
}

// From device `from` to `to` and into the second half of `to`'s memory, by both calls.
static bool copy_between(const std::vector<unsigned*>& memory, int from, int to) {
  constexpr std::size_t kBytes = kCount * sizeof(unsigned);
  unsigned* target = memory[to] + kCount;
  MUST(cudaSetDevice(to));
  MUST(cudaMemset(target, 0, kBytes));
  MUST(cudaMemcpyPeer(target, to, memory[from], from, kBytes));
  if (!holds(target, 1000u * from)) return false;
  MUST(cudaMemset(target, 0, kBytes));
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  MUST(cudaStreamSynchronize(nullptr));  // The other stream may not be ordered with this one.
  MUST(cudaMemcpyPeerAsync(target, to, memory[from], from, kBytes, stream));
  MUST(cudaStreamSynchronize(stream));
  MUST(cudaStreamDestroy(stream));
  return holds(target, 1000u * from);
}

// cudaMemcpyPeer is in order with the work of both devices (Runtime API, Memory Management): after
// earlier writes of `from`, also on a non-blocking stream, and before its next writes.
static bool copy_in_turn(const std::vector<unsigned*>& memory, int from, int to) {
  unsigned* target = memory[to] + kCount;
  const unsigned salt = 1000u * from;
  cudaStream_t stream;
  MUST(cudaSetDevice(from));
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  fill_late<<<1, 64, 0, stream>>>(memory[from], salt + 7, kCount);
  MUST(cudaSetDevice(to));
  MUST(cudaMemcpyPeer(target, to, memory[from], from, kCount * sizeof(unsigned)));
  MUST(cudaSetDevice(from));
  fill<<<(kCount + 255) / 256, 256, 0, stream>>>(memory[from], salt, kCount);
  MUST(cudaGetLastError());
  MUST(cudaSetDevice(to));
  if (!holds(target, salt + 7)) return false;
  MUST(cudaSetDevice(from));
  MUST(cudaStreamSynchronize(stream));
  MUST(cudaStreamDestroy(stream));
  return holds(memory[from], salt);
}

// Also after an upload to the source that is still in flight.
static bool copy_after_upload(int from, int to) {
  constexpr std::size_t kBytes = 32 << 20;
  unsigned *source, *target, *pinned, last = 0;
  cudaStream_t stream;
  MUST(cudaSetDevice(to));
  MUST(cudaMalloc(&target, kBytes));
  MUST(cudaMemset(target, 0, kBytes));
  MUST(cudaDeviceSynchronize());
  MUST(cudaSetDevice(from));
  MUST(cudaMalloc(&source, kBytes));
  MUST(cudaMemset(source, 0, kBytes));
  MUST(cudaDeviceSynchronize());
  MUST(cudaMallocHost(&pinned, kBytes));
  constexpr std::size_t kLast = kBytes / sizeof(unsigned) - 1;
  for (std::size_t i = 0; i <= kLast; ++i) pinned[i] = static_cast<unsigned>(i) + 1;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cudaMemcpyAsync(source, pinned, kBytes, cudaMemcpyHostToDevice, stream));
  MUST(cudaSetDevice(to));
  MUST(cudaMemcpyPeer(target, to, source, from, kBytes));
  MUST(cudaMemcpy(&last, target + kLast, sizeof last, cudaMemcpyDeviceToHost));
  MUST(cudaFree(target));
  MUST(cudaSetDevice(from));
  MUST(cudaStreamDestroy(stream));
  MUST(cudaFreeHost(pinned));
  MUST(cudaFree(source));
  return last == kLast + 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int wanted = std::atoi(argv[1]);
  int count = 0;
  MUST(cudaGetDeviceCount(&count));
  std::printf("devices: %d\n", count);
  if (count != wanted) return 1;
  if (cudaSetDevice(count) != cudaErrorInvalidDevice) return std::puts("one more device"), 1;
  cudaGetLastError();

  std::vector<unsigned*> memory(count);
  std::vector<cudaDeviceProp> properties(count);
  for (int device = 0; device < count; ++device) {
    MUST(cudaGetDeviceProperties(&properties[device], device));
    MUST(cudaSetDevice(device));
    MUST(cudaMalloc(&memory[device], 2 * kCount * sizeof(unsigned)));
    fill<<<(kCount + 255) / 256, 256>>>(memory[device], 1000u * device, kCount);
    MUST(cudaGetLastError());
  }
  for (int device = 0; device < count; ++device) {
    MUST(cudaSetDevice(device));
    cudaPointerAttributes attributes;
    MUST(cudaPointerGetAttributes(&attributes, memory[device]));
    const bool computed = holds(memory[device], 1000u * device);
    std::printf("device %d: %s, its memory is of device %d\n", device,
                computed ? "computed" : "WRONG", attributes.device);
    if (!computed || attributes.device != device) return 1;
    for (int other = 0; other < device; ++other) {
      const auto &mine = properties[device], &its = properties[other];
      if (std::memcmp(&mine.uuid, &its.uuid, sizeof its.uuid) == 0) return std::puts("same"), 1;
    }
  }
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      const bool good = copy_between(memory, from, to);
      std::printf("from %d to %d: %s\n", from, to, good ? "right" : "WRONG");
      const bool in_turn = copy_in_turn(memory, from, to);
      std::printf("from %d to %d in turn: %s\n", from, to, in_turn ? "right" : "WRONG");
      const bool after_upload = copy_after_upload(from, to);
      std::printf("from %d to %d after an upload: %s\n", from, to,
                  after_upload ? "right" : "WRONG");
      if (!good || !in_turn || !after_upload) return 1;
    }
  }
  std::puts("PASSED");
  return 0;
}
