// Question: what does a context cost in time and device memory? It limits the number of warm
// workers.
#include "questions/questions.h"

namespace gpurun::probe {
namespace {

std::int64_t free_bytes(const Driver& driver) {
  std::size_t free = 0;
  std::size_t total = 0;
  must(CU(driver, cuMemGetInfo_v2)(&free, &total), "cuMemGetInfo");
  return static_cast<std::int64_t>(free);
}

}  // namespace

void ask_context_cost(const std::string& libcuda, Answer* answer) {
  auto start = std::chrono::steady_clock::now();
  const Driver driver(libcuda);
  answer->fact("open_library_ms", Json::number(seconds_since(start) * 1e3));
  start = std::chrono::steady_clock::now();
  must(CU(driver, cuInit)(0), "cuInit");
  answer->fact("cuInit_ms", Json::number(seconds_since(start) * 1e3));

  CUcontext primary = nullptr;
  start = std::chrono::steady_clock::now();
  must(CU(driver, cuDevicePrimaryCtxRetain)(&primary, 0), "cuDevicePrimaryCtxRetain");
  answer->fact("primary_context_ms", Json::number(seconds_since(start) * 1e3));
  must(CU(driver, cuCtxSetCurrent)(primary), "cuCtxSetCurrent");
  std::size_t total = 0;
  must(CU(driver, cuDeviceTotalMem_v2)(&total, 0), "cuDeviceTotalMem");
  const std::int64_t before = free_bytes(driver);
  answer->fact("total_minus_free_with_one_context_bytes",
               Json::integer(static_cast<std::int64_t>(total) - before));

  for (int i = 2; i <= 3; ++i) {
    CUcontext another = nullptr;
    start = std::chrono::steady_clock::now();
    must(CU(driver, cuCtxCreate_v2)(&another, 0, 0), "cuCtxCreate");
    const double took = seconds_since(start);
    answer->fact("context_" + std::to_string(i),
                 Json::object({{"create_ms", Json::number(took * 1e3)},
                               {"all_so_far_bytes", Json::integer(before - free_bytes(driver))}}));
  }
  start = std::chrono::steady_clock::now();
  must(CU(driver, cuDevicePrimaryCtxRelease_v2)(0), "cuDevicePrimaryCtxRelease");
  answer->fact("primary_release_ms", Json::number(seconds_since(start) * 1e3));
  start = std::chrono::steady_clock::now();
  must(CU(driver, cuDevicePrimaryCtxRetain)(&primary, 0), "cuDevicePrimaryCtxRetain");
  answer->fact("primary_again_ms", Json::number(seconds_since(start) * 1e3));
}

}  // namespace gpurun::probe
