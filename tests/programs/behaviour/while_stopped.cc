// Driver API: a thousand of each call that returns at once. Says "ready", waits for a line, makes
// the calls, says "all returned", waits for a line, then looks at the results.
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
  say("PASSED");
  return 0;
}
