// Function entries: cuFunc* and cuKernel*, facts of kernels that the client answers (CUDA Driver
// API manual, "Execution Control" and "Library Management").
#include "client/interpose/custom.h"
#include "client/interpose/modules/load.h"
#include "driver_abi/semantics/function_settings.h"

namespace gpurun::client::interpose {
namespace {

using modules::Function;
using modules::Loaded;

int found(EntryContext& here, CUfunction given, Function** function) {
  if (const int result = here.enter(); result != 0) return result;
  here.context = find_context(*here.process, here.lane->context());
  return modules::find_function(here, given, function);
}

int found(EntryContext& here, CUkernel given, Function** function) {
  if (const int result = here.enter(); result != 0) return result;
  here.context = find_context(*here.process, here.lane->context());
  return modules::find_kernel(here, given, function);
}

// Driver 580 reports the parameters of a kernel only to a thread that has a context.
int found_in_context(EntryContext& here, CUkernel given, Function** function) {
  if (const int result = here.enter_context(); result != 0) return result;
  return modules::find_kernel(here, given, function);
}

CUresult parameter_of(const Function& function, std::size_t index, std::size_t* offset,
                      std::size_t* bytes) {
  const modules::Kernel& info = function.info;
  if (!info.layout_known) return CUDA_ERROR_NOT_SUPPORTED;
  if (index >= info.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = info.parameters[index].offset;
  if (bytes != nullptr) *bytes = info.parameters[index].bytes;
  return CUDA_SUCCESS;
}

CUresult parameter_count_of(const Function& function, std::size_t* count) {
  if (!function.info.layout_known) return CUDA_ERROR_NOT_SUPPORTED;
  *count = function.info.parameters.size();
  return CUDA_SUCCESS;
}

// Checks a setting and its value. The kernel runs on `device`.
CUresult check_setting(const Function& function, const Device* device, CUfunction_attribute id,
                       int value) {
  driver_abi::SettingBounds bounds;
  const int most = device == nullptr
                       ? 0
                       : device->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  bounds.dynamic_shared_known = most != 0;
  bounds.dynamic_shared_bytes = most - function.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  return driver_abi::check_function_setting(bounds, id, value);
}

void keep_setting(Function& function, CUfunction_attribute id, int value) {
  const auto at = static_cast<unsigned>(id);
  function.values[at].store(value, std::memory_order_relaxed);
  modules::Registry& all = modules::registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& [context, each] : function.functions) {
    each->values[at].store(value, std::memory_order_relaxed);
  }
  // A kernel is launched with the attributes of its function in the current context.
  if (function.kernel != nullptr) {
    function.kernel->values[at].store(value, std::memory_order_relaxed);
  }
}

const Device* device_of(const EntryContext& here, int server_device) {
  return here.devices().device(here.devices().ordinal_of_server(server_device));
}

}  // namespace

namespace custom {

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found(here, hfunc, &function); result != 0) return cuda(result);
  if (attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  const Handle context = here.handles().context_of(function->handle);
  if (const int lost = here.session().health(context); lost != 0) return cuda(lost);
  if (function->info.knows_attribute(attrib)) {
    *pi = function->attribute(attrib);
    return CUDA_SUCCESS;
  }
  if (function->kind != HandleKind::kFunction) return CUDA_ERROR_NOT_SUPPORTED;
  return cuda(call_row(here, opcode::cuFuncGetAttribute, here.passing_site(), {}, pi, attrib,
                       function->handle));
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found(here, kernel, &function); result != 0) return cuda(result);
  const Device* device = here.devices().device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (device->server_ordinal == function->table->server_device() &&
      function->info.knows_attribute(attrib)) {
    *pi = function->attribute(attrib);
    return CUDA_SUCCESS;
  }
  return cuda(call_row(here, opcode::cuKernelGetAttribute, here.passing_site(), {}, pi, attrib,
                       function->handle, device->server_ordinal));
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Function* function = nullptr;
  if (const int result = found(here, hfunc, &function); result != 0) return cuda(result);
  if (function->kind != HandleKind::kFunction) return CUDA_ERROR_INVALID_HANDLE;
  const Device* device = here.devices().device(here.context->ordinal);
  if (const CUresult result = check_setting(*function, device, attrib, value); result != 0) {
    return result;
  }
  const int result =
      post_row(here, opcode::cuFuncSetAttribute, here.site(), {}, function->handle, attrib, value);
  if (result == 0) keep_setting(*function, attrib, value);
  return cuda(result);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found(here, kernel, &function); result != 0) return cuda(result);
  const Device* device = here.devices().device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult result = check_setting(*function, device, attrib, val); result != 0) {
    return result;
  }
  const int result = post_row(here, opcode::cuKernelSetAttribute, here.site(), {}, attrib, val,
                              function->handle, device->server_ordinal);
  if (result == 0 && device_of(here, function->table->server_device()) == device) {
    keep_setting(*function, attrib, val);
  }
  return cuda(result);
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found(here, hfunc, &function); result != 0) return cuda(result);
  Loaded* module = function->owner;
  if (module->kind == HandleKind::kLibrary) {
    if (const int result = here.enter_context(); result != 0) return cuda(result);
    const int result = modules::module_of_library(here, function->owner, &module);
    if (result != 0) return cuda(result);
  }
  *hmod = as<CUmodule>(module->handle);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found(here, hfunc, &function); result != 0) return cuda(result);
  *name = function->info.name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found(here, hfunc, &function); result != 0) return cuda(result);
  *name = function->info.name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  if (paramOffset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found(here, func, &function); result != 0) return cuda(result);
  return parameter_of(*function, paramIndex, paramOffset, paramSize);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  if (paramOffset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found_in_context(here, kernel, &function); result != 0)
    return cuda(result);
  return parameter_of(*function, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncGetParamCount(CUfunction func, size_t* paramCount) {
  if (paramCount == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found(here, func, &function); result != 0) return cuda(result);
  return parameter_count_of(*function, paramCount);
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t* paramCount) {
  if (paramCount == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found_in_context(here, kernel, &function); result != 0)
    return cuda(result);
  return parameter_count_of(*function, paramCount);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* known = nullptr;
  if (const int result = found(here, function, &known); result != 0) return cuda(result);
  *state = CU_FUNCTION_LOADING_STATE_LOADED;  // The worker's driver loaded it to describe it.
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Function* function = nullptr;
  if (const int result = modules::find_kernel(here, kernel, &function); result != 0) {
    return cuda(result);
  }
  Function* made = nullptr;
  const int result = modules::function_of_kernel(here, function, &made);
  if (made != nullptr) *pFunc = as<CUfunction>(made->handle);
  return cuda(result);
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Function* function = nullptr;
  if (const int result = found(here, kernel, &function); result != 0) return cuda(result);
  *pLib = as<CUlibrary>(function->owner->handle);
  return CUDA_SUCCESS;
}

}  // namespace custom
}  // namespace gpurun::client::interpose
