// Functions and kernels: attributes, parameters, names.
#include "driver_abi/semantics/clusters.h"
#include "driver_abi/semantics/function_settings.h"
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/objects/device_limits.h"
#include "emulated/objects/library.h"
#include "emulated/objects/primary_context.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

driver_abi::SettingBounds bounds_of(const KernelAttributes& fixed) {
  driver_abi::SettingBounds bounds;
  bounds.dynamic_shared_known = true;
  bounds.dynamic_shared_bytes = shared_bytes_per_block_optin(settings().capability) -
                                static_cast<int>(fixed.static_shared_bytes);
  bounds.cluster_extent = driver_abi::kClusterBlocksMax;
  for (int axis = 0; axis < 3; ++axis) {
    bounds.cluster_fixed[axis] = fixed.required_cluster[axis] != 0;
  }
  bounds.scheduling_policy = CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
  return bounds;
}

CUresult set_attribute(Function& function, CUfunction_attribute attribute, int value) {
  GPURUN_TRY(
      driver_abi::check_function_setting(bounds_of(function.attributes()), attribute, value));
  FunctionSettings& set = function.settings();
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      set.max_dynamic_shared_bytes = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      set.shared_carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      set.cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      set.non_portable_cluster = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      set.cluster_scheduling = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult parameter_info(const Function& function, std::size_t index, std::size_t* offset,
                        std::size_t* bytes) {
  const auto& parameters = function.attributes().parameters;
  if (offset == nullptr || index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].offset;
  if (bytes != nullptr) *bytes = parameters[index].bytes;
  return CUDA_SUCCESS;
}

CUresult parameter_count(const Function& function, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = function.attributes().parameters.size();
  return CUDA_SUCCESS;
}

// The function, which lives as long as `module` is held.
struct Entered {
  ContextPtr context;
  FunctionPtr function;
  std::shared_ptr<ContextModule> module;
};

CUresult enter_function(CUfunction handle, Entered* entered) {
  GPURUN_TRY(enter_context(&entered->context));
  GPURUN_TRY(find_function(entered->context, handle, &entered->function));
  entered->module = entered->function->module();
  return entered->module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// The kernel as it is on `device`. The device's primary context need not be active for queries.
CUresult enter_kernel(CUkernel handle, CUdevice device_number, Entered* entered) {
  GPURUN_ENTER_DRIVER();
  const auto kernel = handles().find<Kernel>(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Device* device = device_at(device_number);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const ContextPtr& current = thread_state().current();
  const bool usable = current != nullptr && current->is_active() && &current->device() == device;
  entered->context = usable ? current : primary_context(*device).context();
  GPURUN_TRY(kernel->function(entered->context, &entered->function));
  entered->module = entered->function->module();
  return entered->module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// NVIDIA's driver (580) returns the parameters of a kernel only to a thread with a context.
CUresult enter_kernel_in_context(CUkernel handle, Entered* entered) {
  GPURUN_ENTER(context);
  return enter_kernel(handle, context->device().ordinal(), entered);
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  Entered entered;
  GPURUN_TRY(enter_function(handle, &entered));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return entered.function->attribute(attribute, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  Entered entered;
  GPURUN_TRY(enter_function(handle, &entered));
  return set_attribute(*entered.function, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  Entered entered;
  GPURUN_TRY(enter_function(handle, &entered));
  if (!driver_abi::is_cache_config(config)) return CUDA_ERROR_INVALID_VALUE;
  entered.function->settings().cache_config = config;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
  Entered entered;
  GPURUN_TRY(enter_function(handle, &entered));
  return driver_abi::is_shared_config(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetModule(CUmodule* out, CUfunction handle) {
  Entered entered;
  GPURUN_TRY(enter_function(handle, &entered));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = entered.module->as<CUmodule>();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  Entered entered;
  GPURUN_TRY(enter_function(handle, &entered));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = entered.function->name().c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  Entered entered;
  GPURUN_TRY(enter_function(handle, &entered));
  return parameter_info(*entered.function, index, offset, bytes);
}

CUresult cuFuncGetParamCount(CUfunction handle, size_t* count) {
  Entered entered;
  GPURUN_TRY(enter_function(handle, &entered));
  return parameter_count(*entered.function, count);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  Entered entered;
  GPURUN_TRY(enter_function(handle, &entered));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle) {
  Entered entered;
  GPURUN_TRY(enter_function(handle, &entered));
  CompiledKernel code;
  return entered.function->code(*entered.module, kAnyLaunch, &code);
}

CUresult cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  GPURUN_ENTER(context);
  const auto kernel = handles().find<Kernel>(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr function;
  GPURUN_TRY(kernel->function(context, &function));
  *out = function->as<CUfunction>();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  GPURUN_ENTER_DRIVER();
  const auto kernel = handles().find<Kernel>(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto library = kernel->library();
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = library->as<CUlibrary>();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
  GPURUN_ENTER_DRIVER();
  const auto kernel = handles().find<Kernel>(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->name().c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                              CUdevice device) {
  Entered entered;
  GPURUN_TRY(enter_kernel(handle, device, &entered));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return entered.function->attribute(attribute, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                              CUdevice device) {
  Entered entered;
  GPURUN_TRY(enter_kernel(handle, device, &entered));
  return set_attribute(*entered.function, attribute, value);
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) {
  Entered entered;
  GPURUN_TRY(enter_kernel(handle, device, &entered));
  if (!driver_abi::is_cache_config(config)) return CUDA_ERROR_INVALID_VALUE;
  entered.function->settings().cache_config = config;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* bytes) {
  Entered entered;
  GPURUN_TRY(enter_kernel_in_context(handle, &entered));
  return parameter_info(*entered.function, index, offset, bytes);
}

CUresult cuKernelGetParamCount(CUkernel handle, size_t* count) {
  Entered entered;
  GPURUN_TRY(enter_kernel_in_context(handle, &entered));
  return parameter_count(*entered.function, count);
}

}  // namespace gpurun::emulated::api
