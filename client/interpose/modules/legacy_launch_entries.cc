// Legacy launch entries: the launch calls from before CUDA 4. Their state is kept here, and a
// launch is a cuLaunchKernel with the parameters as one block.
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/modules/objects.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::LegacyLaunch;

// Finds the state of the function behind `given`. The thread must have a context.
int find_legacy_launch(CUfunction given, LegacyLaunch** legacy) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return result;
  modules::Function* function = nullptr;
  if (const int result = modules::find_function(here, given, &function); result != 0) return result;
  *legacy = &function->legacy_launch;
  return 0;
}

CUresult launch_grid(CUfunction f, int width, int height, CUstream stream) {
  LegacyLaunch* legacy = nullptr;
  if (const int result = find_legacy_launch(f, &legacy); result != 0) return cuda(result);
  EntryContext here;
  client::Handle known = 0;
  int result = here.enter_context();
  if (result == 0) result = resolve_stream(here, stream, &known);
  if (result != 0) return cuda(result);
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  return legacy->launch([&](const unsigned* block, unsigned shared_bytes, void** extra) {
    return custom::cuLaunchKernel(f, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                                  block[0], block[1], block[2], shared_bytes, stream, nullptr,
                                  extra);
  });
}

}  // namespace

namespace custom {

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  LegacyLaunch* legacy = nullptr;
  if (const int result = find_legacy_launch(hfunc, &legacy); result != 0) return cuda(result);
  return legacy->set_block_shape(x, y, z);
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  LegacyLaunch* legacy = nullptr;
  if (const int result = find_legacy_launch(hfunc, &legacy); result != 0) return cuda(result);
  return legacy->set_shared_bytes(bytes);
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  LegacyLaunch* legacy = nullptr;
  if (const int result = find_legacy_launch(hfunc, &legacy); result != 0) return cuda(result);
  return legacy->set_parameter_bytes(numbytes);
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  LegacyLaunch* legacy = nullptr;
  if (const int result = find_legacy_launch(hfunc, &legacy); result != 0) return cuda(result);
  return legacy->set_parameter(offset, ptr, numbytes);
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return custom::cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return custom::cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult cuLaunch(CUfunction f) { return launch_grid(f, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return launch_grid(f, grid_width, grid_height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return launch_grid(f, grid_width, grid_height, hStream);
}

}  // namespace custom
}  // namespace gpurun::client::interpose
