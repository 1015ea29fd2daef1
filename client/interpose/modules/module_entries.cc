// Module entries: cuModule*. See CUDA Driver API manual, "Module Management".
#include <cstdlib>
#include <cstring>

#include "client/interpose/custom.h"
#include "client/interpose/modules/files.h"
#include "client/interpose/modules/link.h"
#include "client/interpose/modules/load.h"

namespace gpurun::client::interpose {
namespace {

using modules::Function;
using modules::JitRequest;
using modules::Loaded;

int load_module(CUmodule* module, const Result<driver_abi::Image>& image, JitRequest& jit) {
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return result;
  if (!image.ok()) return modules::image_error(image.status(), jit);
  Handle handle = 0;
  const int result = modules::load(here, HandleKind::kModule, *image, jit, nullptr, &handle);
  if (handle != 0) *module = as<CUmodule>(handle);
  return result;
}

int ensured(EntryContext& here, CUmodule module, Loaded** loaded) {
  if (const int result = here.enter_context(); result != 0) return result;
  const int result = modules::find_loaded(here, handle_of(module), HandleKind::kModule, loaded);
  return result != 0 ? result : modules::ensure(here, *loaded);
}

}  // namespace

namespace custom {

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (module == nullptr || fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Bytes bytes;
  if (const int result = modules::read_image_file(fname, &bytes); result != 0) return cuda(result);
  JitRequest jit;
  return cuda(load_module(module, driver_abi::image_in(bytes), jit));
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  JitRequest jit;
  std::shared_ptr<const Bytes> kept;
  return cuda(load_module(module, modules::image_of_program(image, &kept), jit));
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  JitRequest jit;
  if (const int result = jit.read(options, optionValues, numOptions); result != 0) {
    return cuda(result);
  }
  std::shared_ptr<const Bytes> kept;
  return cuda(load_module(module, modules::image_of_program(image, &kept), jit));
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return custom::cuModuleLoadData(module, fatCubin);
}

CUresult cuModuleUnload(CUmodule hmod) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (const int lost = here.session().health(here.context->handle); lost != 0) return cuda(lost);
  Loaded* loaded = nullptr;
  const Handle handle = handle_of(hmod);
  if (const int result = modules::find_ending(here, handle, HandleKind::kModule, &loaded);
      result != 0) {
    return cuda(result);
  }
  // A library's module ends with its library.
  if (loaded->library != nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return cuda(modules::unload(here, loaded));
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  if (hfunc == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Loaded* loaded = nullptr;
  if (const int result = ensured(here, hmod, &loaded); result != 0) return cuda(result);
  const Handle context = here.handles().context_of(handle_of(hmod));
  if (const int lost = here.session().health(context); lost != 0) return cuda(lost);
  Function* function = nullptr;
  const int result = modules::get_function(here, loaded, name, &function);
  if (function != nullptr) *hfunc = as<CUfunction>(function->handle);
  return cuda(result);
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Loaded* loaded = nullptr;
  const int result = ensured(here, mod, &loaded);
  return cuda(result != 0 ? result : modules::count_kernels(here, loaded, count));
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  if (functions == nullptr && numFunctions != 0) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Loaded* loaded = nullptr;
  if (const int result = ensured(here, mod, &loaded); result != 0) return cuda(result);
  if (!loaded->table->complete()) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned i = 0;
  for (const modules::Kernel* kernel : loaded->table->kernels()) {
    if (i == numFunctions) break;
    Function* function = nullptr;
    const int result = modules::get_function(here, loaded, kernel->name, &function);
    if (result != 0) return cuda(result);
    functions[i++] = as<CUfunction>(function->handle);
  }
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Loaded* loaded = nullptr;
  if (const int result = ensured(here, hmod, &loaded); result != 0) return cuda(result);
  return cuda(modules::get_variable(here, loaded, name, dptr, bytes));
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // CUDA Programming Guide, "Lazy Loading": the default since CUDA 12.2.
  const char* wanted = std::getenv("CUDA_MODULE_LOADING");
  const bool eager = wanted != nullptr && std::strcmp(wanted, "EAGER") == 0;
  *mode = eager ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

}  // namespace custom
}  // namespace gpurun::client::interpose
