// Modules and libraries: loading of images, lookup of functions and variables.
#include "emulated/module/module.h"
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/api/jit_options.h"
#include "emulated/objects/context_module.h"
#include "emulated/objects/library.h"
#include "emulated/objects/primary_context.h"
#include "emulated/settings.h"

#include "base/log.h"

namespace gpurun::emulated {

CUresult find_function(const ContextPtr& context, CUfunction handle, FunctionPtr* function) {
  *function = handles().find<Function>(handle);
  if (*function != nullptr) return CUDA_SUCCESS;
  // A kernel of a library means its function in the current context (cuLaunchKernel, manual).
  const auto kernel = handles().find<Kernel>(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return kernel->function(context, function);
}

namespace {

using ImageResult = Result<std::shared_ptr<const CodeImage>>;

CUresult code_of(const Status& status) {
  if (status.code() == Code::kCuda) return static_cast<CUresult>(status.cuda_error());
  return CUDA_ERROR_INVALID_IMAGE;
}

// Reports the error to the program's log. Our own log has it at level info only, because programs
// load images that they do not need.
CUresult refuse(const Status& status, JitOptions& options) {
  options.report_error(status.message());
  GPURUN_LOG(kInfo, "emulated device: image refused: %s", status.message().c_str());
  return code_of(status);
}

CUresult load(CUmodule* out, const ImageResult& image, JitOptions& options) {
  GPURUN_ENTER(context);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!image.ok()) return refuse(image.status(), options);
  std::shared_ptr<ContextModule> module;
  std::string why;
  const CUresult result = ContextModule::load(context, *image, nullptr, &module, &why);
  context->flush_output();
  if (result != CUDA_SUCCESS) {
    options.report_error(why);
    GPURUN_LOG(kWarning, "emulated device: a module cannot be loaded (error %d): %s",
               static_cast<int>(result), why.c_str());
    return result;
  }
  options.report_success();
  *out = module->as<CUmodule>();
  return CUDA_SUCCESS;
}

CUresult load_library(CUlibrary* out, const ImageResult& image, JitOptions& options) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!image.ok()) return refuse(image.status(), options);
  if ((*image)->is_text()) {
    const auto texts = (*image)->texts();
    const auto target_max = static_cast<std::uint32_t>(settings().capability);
    const Status usable =
        texts.ok() ? Module::check_text(texts->front(), target_max) : texts.status();
    if (!usable.ok()) return refuse(usable, options);
  }
  options.report_success();
  *out = handles().add(std::make_shared<Library>(*image))->as<CUlibrary>();
  return CUDA_SUCCESS;
}

// The context in which a library is searched when the thread has none. It is the first device's,
// which need not be active for this.
CUresult any_context(ContextPtr* context) {
  GPURUN_ENTER_DRIVER();
  const ContextPtr& current = thread_state().current();
  *context = current != nullptr && current->is_active()
                 ? current
                 : primary_context(*devices().front()).context();
  return (*context)->sticky_error();
}

CUresult find_variable(const ContextPtr& context, CUlibrary handle, const char* name,
                       GlobalVariable* variable) {
  const auto library = handles().find<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<ContextModule> module;
  GPURUN_TRY(library->module(context, &module));
  return module->global(name, variable);
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count,
                            CUjit_option* options, void** values) {
  GPURUN_ENTER_DRIVER();
  JitOptions jit;
  GPURUN_TRY(jit.read(count, options, values));
  return load(module, CodeImage::read(image), jit);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return api::cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return api::cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoad(CUmodule* module, const char* path) {
  GPURUN_ENTER_DRIVER();
  JitOptions jit;
  return load(module, CodeImage::read_file(path), jit);
}

CUresult cuModuleUnload(CUmodule handle) {
  GPURUN_ENTER(context);
  const auto module = handles().find<ContextModule>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  module->unload();
  context->flush_output();
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  GPURUN_ENTER(context);
  const auto module = handles().find<ContextModule>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionPtr function;
  std::string why;
  if (const CUresult result = module->function(name, nullptr, &function, &why)) {
    say_unusable(name, why);
    return result;
  }
  *out = function->as<CUfunction>();
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  GPURUN_ENTER(context);
  const auto module = handles().find<ContextModule>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->kernel_names().size());
  return CUDA_SUCCESS;
}

// Functions that cannot be translated have no handle and are left out. The program did not look
// them up, so nothing is logged.
CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int capacity, CUmodule handle) {
  GPURUN_ENTER(context);
  const auto module = handles().find<ContextModule>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == nullptr || capacity == 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned filled = 0;
  for (const std::string& name : module->kernel_names()) {
    FunctionPtr function;
    std::string why;
    if (filled == capacity) break;
    if (module->function(name.c_str(), nullptr, &function, &why) != CUDA_SUCCESS) continue;
    functions[filled++] = function->as<CUfunction>();
  }
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle,
                              const char* name) {
  GPURUN_ENTER(context);
  const auto module = handles().find<ContextModule>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GlobalVariable variable;
  GPURUN_TRY(module->global(name, &variable));
  if (address != nullptr) *address = variable.address;
  if (bytes != nullptr) *bytes = variable.bytes;
  return CUDA_SUCCESS;
}

// The options of the library itself (manual, CUlibraryOption) change nothing on this device, which
// copies what it needs of an image.
CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option* jit_options,
                           void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                           void**, unsigned int option_count) {
  GPURUN_ENTER_DRIVER();
  if (option_count != 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  GPURUN_TRY(jit.read(jit_count, jit_options, jit_values));
  return load_library(library, CodeImage::read(image), jit);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* jit_options,
                               void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                               void**, unsigned int option_count) {
  GPURUN_ENTER_DRIVER();
  if (option_count != 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  GPURUN_TRY(jit.read(jit_count, jit_options, jit_values));
  return load_library(library, CodeImage::read_file(path), jit);
}

CUresult cuLibraryUnload(CUlibrary handle) {
  GPURUN_ENTER_DRIVER();
  const auto library = handles().remove<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  library->unload();
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  ContextPtr context;
  GPURUN_TRY(any_context(&context));
  const auto library = handles().find<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Kernel> kernel;
  std::string why;
  if (const CUresult result = library->kernel(context, name, &kernel, &why)) {
    say_unusable(name, why);
    return result;
  }
  *out = kernel->as<CUkernel>();
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
  ContextPtr context;
  GPURUN_TRY(any_context(&context));
  const auto library = handles().find<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::string> names;
  GPURUN_TRY(library->kernel_names(context, &names));
  *count = static_cast<unsigned>(names.size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int capacity, CUlibrary handle) {
  ContextPtr context;
  GPURUN_TRY(any_context(&context));
  const auto library = handles().find<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::string> names;
  GPURUN_TRY(library->kernel_names(context, &names));
  unsigned filled = 0;
  for (const std::string& name : names) {
    std::shared_ptr<Kernel> kernel;
    std::string why;
    if (filled == capacity) break;
    if (library->kernel(context, name.c_str(), &kernel, &why) != CUDA_SUCCESS) continue;
    kernels[filled++] = kernel->as<CUkernel>();
  }
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  GPURUN_ENTER(context);
  const auto library = handles().find<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<ContextModule> module;
  GPURUN_TRY(library->module(context, &module));
  *out = module->as<CUmodule>();
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                            const char* name) {
  GPURUN_ENTER(context);
  GlobalVariable variable;
  GPURUN_TRY(find_variable(context, library, name, &variable));
  if (address != nullptr) *address = variable.address;
  if (bytes != nullptr) *bytes = variable.bytes;
  return CUDA_SUCCESS;
}

// The same in every context, and no context need be current. The runtime looks up the program's
// managed variables before it makes one current.
CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                             const char* name) {
  ContextPtr context;
  GPURUN_TRY(any_context(&context));
  GlobalVariable variable;
  GPURUN_TRY(find_variable(context, library, name, &variable));
  if (!variable.managed) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = variable.address;
  if (bytes != nullptr) *bytes = variable.bytes;
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
