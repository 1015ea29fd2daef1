// Library entries: cuLibrary*. See CUDA Driver API manual, "Library Management".
#include "base/log.h"
#include "client/interpose/custom.h"
#include "client/interpose/modules/files.h"
#include "client/interpose/modules/link.h"
#include "client/interpose/modules/load.h"

namespace gpurun::client::interpose {
namespace {

using modules::Function;
using modules::JitRequest;
using modules::Loaded;

// The program's options for the library itself.
struct LibraryOptions {
  bool preserved = false;

  int read(const CUlibraryOption* options, unsigned count) {
    if (count != 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
      switch (options[i]) {
        case CU_LIBRARY_BINARY_IS_PRESERVED:
          preserved = true;  // Its value may be missing: cuBLASLt passes none.
          break;
        case CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE:
          GPURUN_LOG(kWarning, "a library option is not supported: it points into the program");
          return CUDA_ERROR_NOT_SUPPORTED;
        default:
          return CUDA_ERROR_INVALID_VALUE;
      }
    }
    return 0;
  }
};

// `preserved`: where the program promises to leave the image. nullptr: it does not promise that.
int load_library(CUlibrary* library, const Result<driver_abi::Image>& image, JitRequest& jit,
                 const void* preserved) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return result;
  here.context = find_context(*here.process, here.lane->context());  // Optional.
  if (!image.ok()) return modules::image_error(image.status(), jit);
  // Only images of nvcc's registration code are deferred. A program that brings its own image
  // expects to get its errors at once.
  if (image->form != driver_abi::ImageForm::kWrapper) preserved = nullptr;
  Handle handle = 0;
  const int result = modules::load(here, HandleKind::kLibrary, *image, jit, preserved, &handle);
  if (handle != 0) *library = as<CUlibrary>(handle);
  return result;
}

int ensured(EntryContext& here, CUlibrary library, Loaded** loaded) {
  if (const int result = here.enter(); result != 0) return result;
  here.context = find_context(*here.process, here.lane->context());
  const int result = modules::find_loaded(here, handle_of(library), HandleKind::kLibrary, loaded);
  return result != 0 ? result : modules::ensure(here, *loaded);
}

}  // namespace

namespace custom {

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void**,
                           unsigned int numLibraryOptions) {
  if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitRequest jit;
  if (const int result = jit.read(jitOptions, jitOptionsValues, numJitOptions); result != 0) {
    return cuda(result);
  }
  LibraryOptions options;
  if (const int result = options.read(libraryOptions, numLibraryOptions); result != 0) {
    return cuda(result);
  }
  std::shared_ptr<const Bytes> kept;
  return cuda(load_library(library, modules::image_of_program(code, &kept), jit,
                           options.preserved ? code : nullptr));
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void**,
                               unsigned int numLibraryOptions) {
  if (library == nullptr || fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitRequest jit;
  if (const int result = jit.read(jitOptions, jitOptionsValues, numJitOptions); result != 0) {
    return cuda(result);
  }
  LibraryOptions options;
  if (const int result = options.read(libraryOptions, numLibraryOptions); result != 0) {
    return cuda(result);
  }
  // Manual, cuLibraryLoadFromFile: this option is not valid for files.
  if (options.preserved) return CUDA_ERROR_INVALID_VALUE;
  Bytes bytes;
  if (const int result = modules::read_image_file(fileName, &bytes); result != 0) {
    return cuda(result);
  }
  return cuda(load_library(library, driver_abi::image_in(bytes), jit, nullptr));
}

CUresult cuLibraryUnload(CUlibrary library) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  Loaded* loaded = nullptr;
  const int result = modules::find_ending(here, handle_of(library), HandleKind::kLibrary, &loaded);
  return cuda(result != 0 ? result : modules::unload(here, loaded));
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Loaded* loaded = nullptr;
  if (const int result = ensured(here, library, &loaded); result != 0) return cuda(result);
  Function* kernel = nullptr;
  const int result = modules::get_function(here, loaded, name, &kernel);
  if (kernel != nullptr) *pKernel = as<CUkernel>(kernel->handle);
  return cuda(result);
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Loaded* loaded = nullptr;
  const int result = ensured(here, lib, &loaded);
  return cuda(result != 0 ? result : modules::count_kernels(here, loaded, count));
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  if (kernels == nullptr && numKernels != 0) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  Loaded* loaded = nullptr;
  if (const int result = ensured(here, lib, &loaded); result != 0) return cuda(result);
  if (!loaded->table->complete()) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned i = 0;
  for (const modules::Kernel* each : loaded->table->kernels()) {
    if (i == numKernels) break;
    Function* kernel = nullptr;
    const int result = modules::get_function(here, loaded, each->name, &kernel);
    if (result != 0) return cuda(result);
    kernels[i++] = as<CUkernel>(kernel->handle);
  }
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Loaded* loaded = nullptr;
  if (const int result = ensured(here, library, &loaded); result != 0) return cuda(result);
  Loaded* module = nullptr;
  const int result = modules::module_of_library(here, loaded, &module);
  if (module != nullptr) *pMod = as<CUmodule>(module->handle);
  return cuda(result);
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Loaded* loaded = nullptr;
  if (const int result = ensured(here, library, &loaded); result != 0) return cuda(result);
  return cuda(modules::get_variable(here, loaded, name, dptr, bytes));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
