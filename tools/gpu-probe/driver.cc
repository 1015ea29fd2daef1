// Driver: opens the driver, and builds the stage of a question.
#include "driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "kernels.h"

namespace gpurun::probe {

Driver::Driver(const std::string& path) : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ != nullptr) return;
  std::fprintf(stderr, "gpu-probe: %s\n", dlerror());
  std::_Exit(3);
}

void* Driver::address(const char* name) const {
  void* found = dlsym(library_, name);
  if (found == nullptr) throw MissingFunction{name};
  return found;
}

void must(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw CallFailed{call, result};
}

Stage::Stage(const Driver& opened, Level level) : driver(opened) {
  if (level == Level::kNothing) return;
  must(CU(driver, cuInit)(0), "cuInit");
  must(CU(driver, cuDeviceGet)(&device, 0), "cuDeviceGet");
  if (level == Level::kInit) return;
  must(CU(driver, cuDevicePrimaryCtxRetain)(&context, device), "cuDevicePrimaryCtxRetain");
  must(CU(driver, cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  must(CU(driver, cuMemAlloc_v2)(&memory, kMemoryBytes), "cuMemAlloc");
  must(CU(driver, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  must(CU(driver, cuEventCreate)(&event, CU_EVENT_DEFAULT), "cuEventCreate");
  if (level == Level::kContext) return;
  must(CU(driver, cuModuleLoadData)(&module, kKernels), "cuModuleLoadData");
  must(CU(driver, cuModuleGetFunction)(&empty, module, "empty"), "cuModuleGetFunction");
  must(CU(driver, cuModuleGetFunction)(&spin, module, "spin"), "cuModuleGetFunction");
  must(CU(driver, cuModuleGetFunction)(&with_five, module, "with_five"), "cuModuleGetFunction");
}

}  // namespace gpurun::probe
