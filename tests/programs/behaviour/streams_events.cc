// Driver API: streams and events: asynchronous copies, events between streams, a kernel that waits
// for another stream's copy, host functions in stream order.
#include <cuda.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "tests/support/cuda.h"

using cuda_check::name_of;

struct Order {
  std::atomic<int> next{0};
  int seen[3] = {-1, -1, -1};
};

static void CUDA_CB first(void* user) {
  auto* order = static_cast<Order*>(user);
  order->seen[0] = order->next++;
}
static void CUDA_CB second(void* user) {
  auto* order = static_cast<Order*>(user);
  order->seen[1] = order->next++;
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUcontext context;
  MUST(cuCtxCreate(&context, nullptr, 0, device));
  CUmodule module;
  MUST(cuModuleLoad(&module, argv[1]));
  CUfunction fill, wait_for, block_sum;
  MUST(cuModuleGetFunction(&fill, module, "fill"));
  MUST(cuModuleGetFunction(&wait_for, module, "wait_for"));
  MUST(cuModuleGetFunction(&block_sum, module, "block_sum"));

  CUstream one, two;
  MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  CUevent filled;
  MUST(cuEventCreate(&filled, CU_EVENT_DISABLE_TIMING));

  constexpr unsigned kBlocks = 64, kThreads = 256, kCount = kBlocks * kThreads;
  CUdeviceptr values, sums;
  MUST(cuMemAlloc(&values, kCount * 4));
  MUST(cuMemAlloc(&sums, kBlocks * 4));
  unsigned* host;
  MUST(cuMemHostAlloc(reinterpret_cast<void**>(&host), kBlocks * 4, 0));
  for (unsigned round = 0; round < 20; ++round) {
    unsigned count = kCount, start = round;
    void* fill_arguments[] = {&values, &count, &start};
    void* sum_arguments[] = {&values, &sums};
    MUST(cuLaunchKernel(fill, kBlocks, 1, 1, kThreads, 1, 1, 0, one, fill_arguments, nullptr));
    MUST(cuEventRecord(filled, one));
    MUST(cuStreamWaitEvent(two, filled, 0));
    MUST(cuLaunchKernel(block_sum, kBlocks, 1, 1, kThreads, 1, 1, kThreads * 4, two, sum_arguments,
                        nullptr));
    MUST(cuMemcpyDtoHAsync(host, sums, kBlocks * 4, two));
    MUST(cuStreamSynchronize(two));
    for (unsigned block = 0; block < kBlocks; ++block) {
      const unsigned low = block * kThreads + round;
      EXPECT(host[block] == kThreads * low + kThreads * (kThreads - 1) / 2);
    }
  }

  // A kernel on one stream waits for a flag that a copy on the other sets, with more work queued.
  CUdeviceptr flag, seen;
  MUST(cuMemAlloc(&flag, 4));
  MUST(cuMemAlloc(&seen, 4));
  MUST(cuMemsetD32(flag, 0, 1));
  MUST(cuMemsetD32(seen, 0, 1));
  MUST(cuCtxSynchronize());
  void* wait_arguments[] = {&flag, &seen};
  MUST(cuLaunchKernel(wait_for, 1, 1, 1, 1, 1, 1, 0, one, wait_arguments, nullptr));
  EXPECT(cuStreamQuery(one) == CUDA_ERROR_NOT_READY);
  host[0] = 42;
  MUST(cuMemcpyHtoDAsync(flag, host, 4, two));
  MUST(cuStreamSynchronize(one));
  unsigned got = 0;
  MUST(cuMemcpyDtoH(&got, seen, 4));
  EXPECT(got == 42);

  // Host functions run in stream order.
  Order order;
  MUST(cuLaunchHostFunc(one, first, &order));
  MUST(cuMemsetD32Async(seen, 9, 1, one));
  MUST(cuLaunchHostFunc(one, second, &order));
  MUST(cuStreamSynchronize(one));
  EXPECT(order.seen[0] == 0 && order.seen[1] == 1);

  // Time between two events is not negative, and known only when both were recorded.
  CUevent begin, end;
  MUST(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  MUST(cuEventCreate(&end, CU_EVENT_DEFAULT));
  float milliseconds = -1;
  std::printf("not recorded: %s\n", name_of(cuEventElapsedTime(&milliseconds, begin, end)));
  MUST(cuEventRecord(begin, one));
  MUST(cuMemsetD32Async(values, 3, kCount, one));
  MUST(cuEventRecord(end, one));
  MUST(cuEventSynchronize(end));
  MUST(cuEventQuery(end));
  MUST(cuEventElapsedTime(&milliseconds, begin, end));
  EXPECT(milliseconds >= 0);
  MUST(cuMemFreeHost(host));
  MUST(cuCtxDestroy(context));
  std::printf("PASSED\n");
  return 0;
}
