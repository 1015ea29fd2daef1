// Posts: posts calls while it watches its thread, and prints the cost of each kind for the thread,
// one line of JSON each. Two threads that post at once print one line each. For comparison it makes
// calls of known cost: one that allocates in the library, and one that makes system calls.
// posting_test.py judges.
#include <cstdint>
#include <cstdio>

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"
#include "tests/system/promises/thread_taking.h"

namespace {

constexpr int kWarmUps = 1000, kPosts = 1000;
constexpr char kKernel[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,"
    " .param .u64 e, .param .u64 f, .param .u64 g, .param .u64 h)\n{\n  ret;\n}\n";

void tell(const char* name, const gpurun::testing::Taken& taken) {
  std::printf(
      "{\"calls\": \"%s\", \"allocations\": %u, \"seen\": %s, \"wakes\": %u, "
      "\"waits\": %u, \"other_calls\": %u, \"last_other\": %ld}\n",
      name, taken.allocations, taken.seen ? "true" : "false", taken.wakes, taken.waits,
      taken.other_calls, taken.last_other);
}

template <typename Call>
void watched(const char* name, int count, Call call) {
  gpurun::testing::watch_this_thread();
  for (int i = 0; i < count; ++i) call();
  tell(name, gpurun::testing::stop_watching());
}

template <typename Call>
void posted(const char* name, Call call) {
  for (int i = 0; i < kWarmUps; ++i) call();
  MUST(cuCtxSynchronize());
  watched(name, kPosts, call);
  MUST(cuCtxSynchronize());
}

// Two threads launch at once, each on its own stream. Both write to the one log.
void posted_by_two(const char* name, CUcontext context, CUfunction kernel,
                   const std::array<CUstream, 2>& streams) {
  std::atomic<unsigned> ready{0};
  std::array<gpurun::testing::Taken, 2> taken;
  std::array<std::thread, 2> threads;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::thread([i, context, kernel, &streams, &ready, &taken] {
      MUST(cuCtxSetCurrent(context));
      std::uint64_t values[8] = {};
      void* parameters[8];
      for (int each = 0; each < 8; ++each) parameters[each] = &values[each];
      const auto launch = [&] {
        MUST(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, streams[i], parameters, nullptr));
      };
      for (int warm = 0; warm < kWarmUps; ++warm) launch();
      MUST(cuStreamSynchronize(streams[i]));
      ready.fetch_add(1);
      while (ready.load() < streams.size()) std::this_thread::yield();
      gpurun::testing::watch_this_thread();
      for (int post = 0; post < kPosts; ++post) launch();
      taken[i] = gpurun::testing::stop_watching();
    });
  }
  for (std::thread& thread : threads) thread.join();
  MUST(cuCtxSynchronize());
  for (const gpurun::testing::Taken& each : taken) tell(name, each);
}

}  // namespace

int main() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr, other = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  CUmodule module = nullptr;
  CUfunction empty = nullptr;
  void* pinned = nullptr;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  MUST(cuMemAlloc_v2(&memory, 4096));
  MUST(cuMemHostAlloc(&pinned, 4096, 0));
  watched("control: loads a module", 1, [&] { MUST(cuModuleLoadData(&module, kKernel)); });
  MUST(cuModuleGetFunction(&empty, module, "empty"));

  std::uint64_t values[8] = {};
  void* parameters[8];
  for (int i = 0; i < 8; ++i) parameters[i] = &values[i];
  posted("launch of 8 parameters", [&] {
    ++values[0];
    MUST(cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  });
  posted("memset", [&] { MUST(cuMemsetD8Async(memory, 1, 64, stream)); });
  posted("event record", [&] { MUST(cuEventRecord(event, stream)); });
  posted("stream wait", [&] { MUST(cuStreamWaitEvent(other, event, 0)); });
  posted("copy in of 64 pinned bytes",
         [&] { MUST(cuMemcpyHtoDAsync_v2(memory, pinned, 64, stream)); });
  posted_by_two("launch of 8 parameters, two threads", context, empty, {stream, other});
  watched("control: asks who it is", 3, [] { static_cast<void>(syscall(SYS_getppid)); });
  return 0;
}
