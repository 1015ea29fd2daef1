// Driver API: a thousand of each call that returns at once, and copies to the device that are too
// large for the command log. Says "ready", waits for a line, makes the calls, says "all returned",
// waits for a line, then looks at the results.
//
// A copy to the device returns when its bytes lie in the client's window, which holds
// kBulkWindowBytes (64 MiB, protocol/limits.h) in slots of kBulkChunkBytes (256 KiB), of which each
// transfer begins one, and at most 16 MiB of one transfer (client/bulk.h). Larger pinned sources
// are read later, and fill the window all the same. Beyond, a copy whose source is read at once
// waits for the server (and fails when nothing was heard for kSilenceDeadlineS), so the copies here
// take 164 of the 256 slots, of which 16 are kept.
#include <cstring>
#include <string>
#include <vector>

#include "check.h"

static void wait_for_line() {
  char line[64];
  EXPECT(std::fgets(line, sizeof line, stdin) != nullptr);
}

static void say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

namespace {

constexpr std::size_t kPiece = 64 << 10, kLarge = 8 << 20, kMore = 4 << 20;
constexpr unsigned kPageablePieces = 100, kPinnedPieces = 16;

// Copies above kInlineBytesMax, each from a source of its own place and pattern.
struct LargeCopies {
  CUdeviceptr pageable = 0, pinned = 0, large = 0, large_pinned = 0;
  unsigned char *source = nullptr, *large_source = nullptr;  // Pinned.

  void allocate() {
    MUST(cuMemAlloc(&pageable, kPageablePieces * kPiece));
    MUST(cuMemAlloc(&pinned, kPinnedPieces * kPiece));
    MUST(cuMemAlloc(&large, kLarge));
    MUST(cuMemAlloc(&large_pinned, kMore));
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(&source), kPinnedPieces * kPiece, 0));
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(&large_source), kMore, 0));
  }

  static unsigned char pattern(std::size_t index, unsigned salt) {
    return static_cast<unsigned char>(index * 31 + index / 4096 + salt);
  }

  static void fill(unsigned char* bytes, std::size_t count, unsigned salt) {
    for (std::size_t i = 0; i < count; ++i) bytes[i] = pattern(i, salt);
  }

  void start(CUstream stream) {
    std::vector<unsigned char> bytes(kPiece);
    for (unsigned i = 0; i < kPageablePieces; ++i) {
      fill(bytes.data(), kPiece, i);
      MUST(cuMemcpyHtoDAsync(pageable + i * kPiece, bytes.data(), kPiece, stream));
      std::memset(bytes.data(), 0xee, kPiece);  // Pageable: free at once.
    }
    std::vector<unsigned char> much(kLarge);
    fill(much.data(), kLarge, 201);
    MUST(cuMemcpyHtoDAsync(large, much.data(), kLarge, stream));
    std::memset(much.data(), 0xee, kLarge);
    // Pinned memory must stay as it is until the copy is done.
    fill(large_source, kMore, 202);
    MUST(cuMemcpyHtoDAsync(large_pinned, large_source, kMore, stream));
    for (unsigned i = 0; i < kPinnedPieces; ++i) {
      fill(source + i * kPiece, kPiece, 100 + i);
      MUST(cuMemcpyHtoDAsync(pinned + i * kPiece, source + i * kPiece, kPiece, stream));
    }
  }

  static void look(CUdeviceptr memory, std::size_t count, unsigned salt) {
    std::vector<unsigned char> bytes(count);
    MUST(cuMemcpyDtoH(bytes.data(), memory, count));
    for (std::size_t i = 0; i < count; ++i) EXPECT(bytes[i] == pattern(i, salt));
  }

  void look_at_all() {
    for (unsigned i = 0; i < kPageablePieces; ++i) look(pageable + i * kPiece, kPiece, i);
    for (unsigned i = 0; i < kPinnedPieces; ++i) look(pinned + i * kPiece, kPiece, 100 + i);
    look(large, kLarge, 201);
    look(large_pinned, kMore, 202);
  }
};

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  constexpr unsigned kTimes = 1000, kCount = 256;
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  CUmodule module;
  MUST(cuModuleLoad(&module, argv[1]));
  CUfunction fill;
  MUST(cuModuleGetFunction(&fill, module, "fill"));
  CUstream one, two;
  MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  CUevent event;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUdeviceptr filled, copied, set;
  for (CUdeviceptr* memory : {&filled, &copied, &set}) MUST(cuMemAlloc(memory, kCount * 4));
  unsigned* pinned;
  MUST(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kCount * 4, 0));
  LargeCopies copies;
  copies.allocate();
  MUST(cuCtxSynchronize());
  say("ready");
  wait_for_line();

  std::vector<CUstream> streams(kTimes);
  std::vector<CUevent> events(kTimes);
  unsigned count = kCount;
  for (unsigned i = 0; i < kTimes; ++i) {
    void* arguments[] = {&filled, &count, &i};
    MUST(cuLaunchKernel(fill, 1, 1, 1, kCount, 1, 1, 0, one, arguments, nullptr));
    MUST(cuEventRecord(event, one));
    MUST(cuStreamWaitEvent(two, event, 0));
    MUST(cuMemsetD32Async(set, i, kCount, two));
    unsigned source[64];
    std::memset(source, static_cast<int>(i & 0xff), sizeof source);
    MUST(cuMemcpyHtoDAsync(copied, source, sizeof source, two));  // Pageable: free at once.
    std::memset(source, 0xee, sizeof source);
    MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&events[i], CU_EVENT_DEFAULT));
    CUfunction again;
    MUST(cuModuleGetFunction(&again, module, i % 2 == 0 ? "add" : "block_sum"));
  }
  for (unsigned i = 0; i < kCount; ++i) pinned[i] = 7 * i;
  MUST(cuMemcpyHtoDAsync(copied + 256, pinned, 64, two));
  copies.start(two);
  for (unsigned i = 0; i < kTimes; ++i) {
    MUST(cuStreamDestroy(streams[i]));
    MUST(cuEventDestroy(events[i]));
  }
  say("all returned");
  wait_for_line();

  std::vector<unsigned> host(kCount);
  MUST(cuStreamSynchronize(two));
  MUST(cuMemcpyDtoH(host.data(), filled, kCount * 4));
  for (unsigned i = 0; i < kCount; ++i) EXPECT(host[i] == kTimes - 1 + i);
  MUST(cuMemcpyDtoH(host.data(), set, kCount * 4));
  for (unsigned i = 0; i < kCount; ++i) EXPECT(host[i] == kTimes - 1);
  MUST(cuMemcpyDtoH(host.data(), copied, kCount * 4));
  for (unsigned i = 0; i < 64; ++i) EXPECT(host[i] == ((kTimes - 1) & 0xff) * 0x01010101u);
  for (unsigned i = 0; i < 16; ++i) EXPECT(host[64 + i] == 7 * i);
  copies.look_at_all();
  say("PASSED");
  return 0;
}
