// Calls that wait for the device, and sequences that end in one.
#include "tests/bench/client/bench.h"

namespace gpurun::bench {
namespace {

constexpr int kCalls = 2000;

}  // namespace

void measure_fences(const Stage& s, Results* results) {
  std::uint64_t values[8] = {};
  void* parameters[8];
  for (int i = 0; i < 8; ++i) parameters[i] = &values[i];
  const auto launch = [&] {
    MUST(CU(cuLaunchKernel)(s.empty, 1, 1, 1, 32, 1, 1, 0, s.stream, parameters, nullptr));
  };
  unsigned word = 0;
  results->each("idle context synchronise", kCalls, [] { MUST(CU(cuCtxSynchronize)()); });
  results->each("idle stream synchronise", kCalls,
                [&] { MUST(CU(cuStreamSynchronize)(s.stream)); });
  results->each("idle stream query", kCalls, [&] { MUST(CU(cuStreamQuery)(s.stream)); });
  results->each("launch + stream synchronise", kCalls, [&] {
    launch();
    MUST(CU(cuStreamSynchronize)(s.stream));
  });
  results->each("launch + context synchronise", kCalls, [&] {
    launch();
    MUST(CU(cuCtxSynchronize)());
  });
  results->each("event record + event synchronise", kCalls, [&] {
    MUST(CU(cuEventRecord)(s.event, s.stream));
    MUST(CU(cuEventSynchronize)(s.event));
  });
  results->each("event record + query", kCalls, [&] {
    MUST(CU(cuEventRecord)(s.event, s.stream));
    const CUresult answer = CU(cuEventQuery)(s.event);
    if (answer != CUDA_ERROR_NOT_READY) must(answer, "cuEventQuery");
  });
  MUST(CU(cuEventSynchronize)(s.event));
  results->each("event query, completed", kCalls, [&] { MUST(CU(cuEventQuery)(s.event)); });
  results->each("copy out 4 B", kCalls, [&] { MUST(CU(cuMemcpyDtoH_v2)(&word, s.memory, 4)); });
  results->each("copy out 4 B, pinned, async + synchronise", kCalls, [&] {
    MUST(CU(cuMemcpyDtoHAsync_v2)(s.pinned, s.memory, 4, s.stream));
    MUST(CU(cuStreamSynchronize)(s.stream));
  });
  results->each("copy in 4 B, pageable", kCalls,
                [&] { MUST(CU(cuMemcpyHtoD_v2)(s.memory, &word, 4)); });
  results->each("10 launches + memset + copy out 4 B", kCalls, [&] {
    for (int i = 0; i < 10; ++i) launch();
    MUST(CU(cuMemsetD32Async)(s.memory, 1, 1, s.stream));
    MUST(CU(cuMemcpyDtoHAsync_v2)(&word, s.memory, 4, s.stream));
    MUST(CU(cuStreamSynchronize)(s.stream));
  });
}

}  // namespace gpurun::bench
