// The launch calls from before CUDA 4: state of a function, then a cuLaunchKernel with the
// parameters as one block.
#include "driver_abi/state/legacy_launch.h"

#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/objects/context_module.h"

namespace gpurun::emulated {
namespace {

// The state of a function, which lives as long as the function. (In a unity build with
// function.cc.)
CUresult find_legacy_launch(CUfunction handle, FunctionPtr* function) {
  GPURUN_ENTER(context);
  return find_function(context, handle, function);
}

CUresult launch_legacy_grid(CUfunction handle, int width, int height, CUstream stream) {
  FunctionPtr function;
  GPURUN_TRY(find_legacy_launch(handle, &function));
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  return function->legacy_launch().launch(
      [&](const unsigned* block, unsigned shared_bytes, void** extra) {
        return api::cuLaunchKernel(handle, static_cast<unsigned>(width),
                                   static_cast<unsigned>(height), 1, block[0], block[1], block[2],
                                   shared_bytes, stream, nullptr, extra);
      });
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
  FunctionPtr function;
  GPURUN_TRY(find_legacy_launch(handle, &function));
  return function->legacy_launch().set_block_shape(x, y, z);
}

CUresult cuFuncSetSharedSize(CUfunction handle, unsigned int bytes) {
  FunctionPtr function;
  GPURUN_TRY(find_legacy_launch(handle, &function));
  return function->legacy_launch().set_shared_bytes(bytes);
}

CUresult cuParamSetSize(CUfunction handle, unsigned int bytes) {
  FunctionPtr function;
  GPURUN_TRY(find_legacy_launch(handle, &function));
  return function->legacy_launch().set_parameter_bytes(bytes);
}

CUresult cuParamSetv(CUfunction handle, int offset, void* value, unsigned int bytes) {
  FunctionPtr function;
  GPURUN_TRY(find_legacy_launch(handle, &function));
  return function->legacy_launch().set_parameter(offset, value, bytes);
}

CUresult cuParamSeti(CUfunction handle, int offset, unsigned int value) {
  return api::cuParamSetv(handle, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction handle, int offset, float value) {
  return api::cuParamSetv(handle, offset, &value, sizeof value);
}

CUresult cuLaunch(CUfunction handle) { return launch_legacy_grid(handle, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction handle, int width, int height) {
  return launch_legacy_grid(handle, width, height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream) {
  return launch_legacy_grid(handle, width, height, stream);
}

}  // namespace gpurun::emulated::api
