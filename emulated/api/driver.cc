// Calls that need no context: initialisation, version, error names.
#include "emulated/api/entry.h"
#include "emulated/objects/kernel_log.h"
#include "emulated/settings.h"

namespace gpurun::emulated::api {

static_assert(kNewestDriverVersion == CUDA_VERSION, "see driver_abi/cuda_types.toml");

CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (devices().empty()) return CUDA_ERROR_NO_DEVICE;
  kernel_log::open_file();
  set_initialized();
  return enter_driver();
}

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = settings().driver_version;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  GPURUN_ENTER_DRIVER();
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuProfilerStart(void) {
  GPURUN_ENTER(context);
  return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void) {
  GPURUN_ENTER(context);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
