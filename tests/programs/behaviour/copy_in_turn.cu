// Runtime API: a copy from pinned memory takes its turn in the stream, and the call does not wait
// for it. A function of the host blocks the stream until this very thread has made its copies. They
// must carry the bytes that it writes then. Until then other streams continue, and so do copies
// from pageable memory, which are read before they return.
#include <cuda_runtime.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "tests/support/cuda.h"

constexpr size_t kSmall = 100, kMiddle = 600'000, kLarge = size_t{24} << 20, kLargeCopies = 4;
constexpr size_t kBytes = kSmall + kMiddle + kLarge;
constexpr size_t kPitch = 4096, kLines = 16;
constexpr size_t kPageable = 40'000;  // A call with a larger one may wait.

struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
  unsigned char* memory = nullptr;
  unsigned char value = 0;

  void let_go() {
    const std::lock_guard<std::mutex> lock(mutex);
    open = true;
    opened.notify_all();
  }
};

static void wait_and_fill(void* user) {
  auto* gate = static_cast<Gate*>(user);
  std::unique_lock<std::mutex> lock(gate->mutex);
  gate->opened.wait(lock, [gate] { return gate->open; });
  std::memset(gate->memory, gate->value, kBytes);
}

static void expect(const unsigned char* device, size_t bytes, unsigned char wanted,
                   const char* what) {
  std::vector<unsigned char> host(bytes);
  MUST(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost));
  if (host[0] == wanted && std::memcmp(host.data(), host.data() + 1, bytes - 1) == 0) return;
  std::printf("FAILED: the copy took %d first, and not all %d: %s\n", host[0], wanted, what);
  std::exit(1);
}

static void expect_all(const unsigned char* to, unsigned char value) {
  expect(to, kSmall, value, "small");
  expect(to + kSmall, kMiddle, value, "middle");
  for (size_t i = 0; i < kLargeCopies; ++i) {
    expect(to + kSmall + kMiddle + i * kLarge, kLarge, value, "large");
  }
}

static void copy_all(unsigned char* to, const unsigned char* pinned, cudaStream_t stream) {
  MUST(cudaMemcpyAsync(to, pinned, kSmall, cudaMemcpyHostToDevice, stream));
  MUST(cudaMemcpyAsync(to + kSmall, pinned + kSmall, kMiddle, cudaMemcpyHostToDevice, stream));
  // More than gpurun lets be in flight at a time.
  for (size_t i = 0; i < kLargeCopies; ++i) {
    MUST(cudaMemcpyAsync(to + kSmall + kMiddle + i * kLarge, pinned + kSmall + kMiddle, kLarge,
                         cudaMemcpyHostToDevice, stream));
  }
}

static void in_turn(unsigned char* to, unsigned char* elsewhere, unsigned char* box,
                    unsigned char* pinned, unsigned char* other_pinned) {
  cudaStream_t stream, other;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  Gate gate;
  gate.memory = pinned;
  gate.value = 7;
  std::memset(pinned, 9, kBytes);
  MUST(cudaLaunchHostFunc(stream, &wait_and_fill, &gate));
  copy_all(to, pinned, stream);
  MUST(cudaMemcpy2DAsync(box, kPitch, pinned, 2 * kPitch, kPitch - 1, kLines,
                         cudaMemcpyHostToDevice, stream));
  std::vector<unsigned char> pageable(kPageable, 5);
  MUST(cudaMemcpyAsync(elsewhere, pageable.data(), kPageable, cudaMemcpyHostToDevice, stream));
  std::fill(pageable.begin(), pageable.end(), static_cast<unsigned char>(6));
  if (cudaStreamQuery(stream) != cudaErrorNotReady) {
    std::printf("FAILED: the stream is done before its host function\n");
    std::exit(1);
  }
  // Meanwhile another stream completes copies of the same size.
  std::memset(other_pinned, 3, kBytes);
  MUST(cudaMemcpyAsync(elsewhere + kPageable, other_pinned, kBytes, cudaMemcpyHostToDevice, other));
  MUST(cudaStreamSynchronize(other));
  gate.let_go();
  MUST(cudaStreamSynchronize(stream));
  std::memset(pinned, 1, kBytes);
  expect_all(to, 7);
  for (size_t i = 0; i < kLines; ++i) expect(box + i * kPitch, kPitch - 1, 7, "a line of a box");
  expect(elsewhere, kPageable, 5, "pageable");
  expect(elsewhere + kPageable, kBytes, 3, "another stream's");
  MUST(cudaStreamDestroy(stream));
  MUST(cudaStreamDestroy(other));
}

// The bytes of such a copy are undefined, but the memory must remain until it is read.
static void freed_behind(unsigned char* to) {
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (unsigned char value = 1; value <= 2; ++value) {
    unsigned char* pinned = nullptr;
    MUST(cudaMallocHost(&pinned, kBytes));
    std::memset(pinned, value, kBytes);
    copy_all(to, pinned, stream);
    MUST(cudaFreeHost(pinned));
    MUST(cudaStreamSynchronize(stream));
    expect_all(to, value);
  }
  MUST(cudaStreamDestroy(stream));
}

// A program may overwrite a source at once when its stream has passed the copy. ThreadSanitizer
// must not find a thread of gpurun that still reads it.
static void filled_again(unsigned char* to, unsigned char* pinned) {
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (unsigned char value = 1; value <= 50; ++value) {
    std::memset(pinned, value, kMiddle);
    MUST(cudaMemcpyAsync(to, pinned, kMiddle, cudaMemcpyHostToDevice, stream));
    MUST(cudaStreamSynchronize(stream));
  }
  expect(to, kMiddle, 50, "filled again");
  MUST(cudaStreamDestroy(stream));
}

int main() {
  unsigned char *to = nullptr, *elsewhere = nullptr, *box = nullptr, *pinned = nullptr,
                *other = nullptr;
  MUST(cudaMalloc(&to, kBytes + kLargeCopies * kLarge));
  MUST(cudaMalloc(&elsewhere, kBytes + kPageable));
  MUST(cudaMalloc(&box, kPitch * kLines));
  MUST(cudaMallocHost(&pinned, kBytes));
  MUST(cudaMallocHost(&other, kBytes));
  in_turn(to, elsewhere, box, pinned, other);
  freed_behind(to);
  filled_again(to, pinned);
  std::printf("PASSED\n");
  return 0;
}
