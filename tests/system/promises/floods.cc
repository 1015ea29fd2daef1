// Floods: more bytes than any buffer of gpurun holds, in one direction, from or to a peer that the
// test has stopped. stalls_test.py watches the memory of both sides.
//
// usage: floods in|out PROGRESS
//   PROGRESS   a file of 8 bytes in which it counts its calls as they return.
// Prints "ready", waits for a line, makes the calls, prints "all returned", waits for a line, then
// checks the results.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"
#include "tests/system/promises/primary_context.h"

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kBuffer = 64 * kMiB;
constexpr unsigned kRounds = 12;  // Of the buffer.
constexpr std::size_t kPieces[] = {4, 4096, 64 << 10, kMiB, 4 * kMiB, 3 * kMiB};

std::atomic<unsigned long long>* returned;

void wait_for_line() {
  char line[64];
  EXPECT(std::fgets(line, sizeof line, stdin) != nullptr);
}

void say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

unsigned char pattern(std::size_t index, unsigned salt) {
  return static_cast<unsigned char>(index * 31 + index / 4096 + salt);
}

void fill(unsigned char* bytes, unsigned salt) {
  for (std::size_t i = 0; i < kBuffer; ++i) bytes[i] = pattern(i, salt);
}

void look(const unsigned char* bytes, unsigned salt) {
  for (std::size_t i = 0; i < kBuffer; ++i) EXPECT(bytes[i] == pattern(i, salt));
}

struct Buffers {
  CUdeviceptr device = 0;
  unsigned char* host = nullptr;
  CUstream stream = nullptr;

  Buffers(bool pinned, unsigned salt) : salt_(salt), pageable_(pinned ? 0 : kBuffer) {
    MUST(cuMemAlloc_v2(&device, kBuffer));
    MUST(cuMemsetD8_v2(device, 0, kBuffer));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    host = pageable_.data();
    if (pinned) MUST(cuMemHostAlloc(reinterpret_cast<void**>(&host), kBuffer, 0));
    fill(host, salt);
  }

  void send(CUcontext context) const {
    MUST(cuCtxSetCurrent(context));
    for (unsigned round = 0; round < kRounds; ++round) {
      std::size_t at = 0;
      for (unsigned i = 0; at < kBuffer; ++i) {
        const std::size_t piece = std::min(kPieces[i % std::size(kPieces)], kBuffer - at);
        MUST(cuMemcpyHtoDAsync_v2(device + at, host + at, piece, stream));
        at += piece;
        ++*returned;
      }
    }
  }

  void look_at_device() const {
    MUST(cuStreamSynchronize(stream));  // Until then gpurun may read the pinned memory.
    std::memset(host, 0, kBuffer);
    MUST(cuMemcpyDtoH_v2(host, device, kBuffer));
    look(host, salt_);
  }

  void receive() const {
    for (unsigned round = 0; round < kRounds; ++round) {
      MUST(cuMemcpyDtoHAsync_v2(host, device, kBuffer, stream));
      ++*returned;
    }
  }

 private:
  unsigned salt_;
  std::vector<unsigned char> pageable_;
};

void count_in(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  EXPECT(file >= 0);
  void* memory = mmap(nullptr, sizeof *returned, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  EXPECT(memory != MAP_FAILED);
  returned = static_cast<std::atomic<unsigned long long>*>(memory);
  close(file);
}

void in(CUcontext context) {
  const Buffers pageable(false, 1), pinned(true, 2);
  MUST(cuCtxSynchronize());
  say("ready");
  wait_for_line();
  std::thread other([&pinned, context] { pinned.send(context); });
  pageable.send(context);
  other.join();
  say("all returned");
  wait_for_line();
  pageable.look_at_device();
  pinned.look_at_device();
}

void out() {
  const Buffers pinned(true, 3);
  MUST(cuMemcpyHtoD_v2(pinned.device, pinned.host, kBuffer));
  MUST(cuCtxSynchronize());
  std::memset(pinned.host, 0, kBuffer);
  say("ready");
  wait_for_line();
  pinned.receive();
  say("all returned");
  wait_for_line();
  MUST(cuStreamSynchronize(pinned.stream));
  look(pinned.host, 3);
}

}  // namespace

int main(int count, char** arguments) {
  EXPECT(count == 3);
  count_in(arguments[2]);
  const CUcontext context = make_primary_context();
  if (std::string(arguments[1]) == "in") {
    in(context);
  } else {
    out();
  }
  say("PASSED");
  return 0;
}
