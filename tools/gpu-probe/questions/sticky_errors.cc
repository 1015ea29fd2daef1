// Question: what does a kernel's fault do to the context? The code at the first synchronisation,
// and later.
#include "child.h"
#include "questions/questions.h"

namespace gpurun::probe {
namespace {

void fault(const std::string& libcuda, const char* kernel, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kWork);
  CUfunction function = nullptr;
  must(CU(driver, cuModuleGetFunction)(&function, stage.module, kernel), "cuModuleGetFunction");
  const std::string prefix = std::string(kernel) + ".";
  answer->fact(prefix + "launch",
               Json::result(CU(driver, cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stage.stream,
                                                       nullptr, nullptr)));
  answer->fact(prefix + "synchronize", Json::result(CU(driver, cuStreamSynchronize)(stage.stream)));
  answer->fact(prefix + "synchronize_again",
               Json::result(CU(driver, cuStreamSynchronize)(stage.stream)));
  CUdeviceptr made = 0;
  answer->fact(prefix + "cuMemAlloc", Json::result(CU(driver, cuMemAlloc_v2)(&made, 16)));
  answer->fact(prefix + "cuMemFree", Json::result(CU(driver, cuMemFree_v2)(stage.memory)));
  answer->fact(prefix + "cuEventDestroy", Json::result(CU(driver, cuEventDestroy_v2)(stage.event)));
  answer->fact(prefix + "cuStreamQuery", Json::result(CU(driver, cuStreamQuery)(stage.stream)));
  CUcontext current = nullptr;
  answer->fact(prefix + "cuCtxGetCurrent", Json::result(CU(driver, cuCtxGetCurrent)(&current)));
  answer->fact(prefix + "cuDevicePrimaryCtxReset",
               Json::result(CU(driver, cuDevicePrimaryCtxReset_v2)(stage.device)));
  answer->fact(prefix + "cuMemAlloc_after_reset",
               Json::result(CU(driver, cuMemAlloc_v2)(&made, 16)));
}

}  // namespace

void ask_sticky_errors(const std::string& libcuda, Answer* answer) {
  // Each fault ruins its process.
  for (const char* kernel : {"bad_address", "fall_in_trap"}) {
    const ChildResult result = run_child(60, [&libcuda, kernel](int fd) {
      Answer inner(fd);
      fault(libcuda, kernel, &inner);
      return 0;
    });
    // The inner lines have the form that our own parent reads.
    std::size_t start = 0;
    while (start < result.output.size()) {
      const std::size_t end = result.output.find('\n', start);
      if (end == std::string::npos) break;
      const std::string line = result.output.substr(start, end - start);
      const std::size_t tab = line.find('\t');
      if (line.rfind("F ", 0) == 0 && tab != std::string::npos)
        answer->fact(line.substr(2, tab - 2), Json::raw(line.substr(tab + 1)));
      start = end + 1;
    }
    const std::string failure = failure_of(result);
    if (!failure.empty()) answer->fact(std::string(kernel) + ".process", Json::text(failure));
  }
}

}  // namespace gpurun::probe
