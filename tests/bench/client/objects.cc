// Objects: creating and destroying the objects that programs create often.
#include "tests/bench/client/bench.h"

namespace gpurun::bench {
namespace {

constexpr int kPairs = 2000;
constexpr int kBatch = 200;

}  // namespace

void measure_objects(const Stage&, Results* results) {
  const auto settle = [] { MUST(CU(cuCtxSynchronize)()); };
  results->each(
      "event create + destroy", kPairs,
      [] {
        CUevent event = nullptr;
        MUST(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
        MUST(CU(cuEventDestroy_v2)(event));
      },
      kBatch, settle);
  results->each(
      "stream create + destroy", kPairs,
      [] {
        CUstream stream = nullptr;
        MUST(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        MUST(CU(cuStreamDestroy_v2)(stream));
      },
      kBatch, settle);
  results->each(
      "device alloc + free, 64 KiB", kPairs,
      [] {
        CUdeviceptr memory = 0;
        MUST(CU(cuMemAlloc_v2)(&memory, 64 << 10));
        MUST(CU(cuMemFree_v2)(memory));
      },
      kBatch, settle);
  results->each(
      "pinned host alloc + free, 1 MiB", kPairs / 10,
      [] {
        void* memory = nullptr;
        MUST(CU(cuMemHostAlloc)(&memory, 1 << 20, 0));
        MUST(CU(cuMemFreeHost)(memory));
      },
      kBatch, settle);
}

}  // namespace gpurun::bench
