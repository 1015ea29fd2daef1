// Modules, libraries and kernels of the null device. Every image loads. Kernels come from its PTX,
// and any other name gives a kernel without parameters.
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "driver_abi/fatbin.h"
#include "driver_abi/image_length.h"
#include "driver_abi/ptx_selection.h"
#include "tests/drivers/null/api.h"
#include "tests/drivers/null/entry.h"
#include "tests/drivers/null/ptx_entries.h"

namespace gpurun::null_device::api {
namespace {

using driver_abi::HandleKind;

constexpr std::size_t kVariableBytes = 65'536;
constexpr int kLocalBytes = 0;

// Memory of a managed variable, of zeros.
struct Unmap {
  std::size_t bytes = 0;
  void operator()(unsigned char* memory) const { munmap(memory, bytes); }
};
using ManagedPages = std::unique_ptr<unsigned char, Unmap>;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugeBytes = std::size_t{3} << 30;
constexpr std::size_t kHalfBytes = 32;

struct Kernel {
  std::uint64_t image;
  KernelEntry entry;
  std::string name;
};

struct Loaded {
  std::vector<KernelEntry> entries;
  std::map<std::string, std::uint64_t> kernels;  // By name: kernel (or function) handle.
  std::map<std::string, std::unique_ptr<unsigned char[]>> variables;
  std::map<std::string, ManagedPages> managed;
};

struct Images {
  std::mutex mutex;
  std::map<std::uint64_t, Loaded> loaded;
  std::map<std::uint64_t, Kernel> kernels;
};

Images& images() {
  alignas(Images) static unsigned char storage[sizeof(Images)];
  static auto* const all = new (storage) Images;
  return *all;
}

std::vector<KernelEntry> entries_of(const driver_abi::Image& image) {
  std::vector<KernelEntry> all;
  const auto add = [&all](std::string_view ptx) {
    for (KernelEntry& entry : read_entries(ptx)) all.push_back(std::move(entry));
  };
  for (const ByteView piece : image.pieces) {
    if (image.form == driver_abi::ImageForm::kPtx) {
      add({reinterpret_cast<const char*>(piece.data()), piece.size()});
      continue;
    }
    if (image.form == driver_abi::ImageForm::kElf || image.form == driver_abi::ImageForm::kTileIr) {
      continue;
    }
    const auto found = driver_abi::read_fatbin(piece);
    if (!found.ok()) continue;
    const auto chosen = driver_abi::select_ptx(*found);
    if (!chosen) continue;
    const auto content = driver_abi::fatbin_content((*found)[*chosen]);
    if (content.ok()) add({reinterpret_cast<const char*>(content->data()), content->size()});
  }
  return all;
}

CUresult load(std::uint64_t* handle, const void* code, HandleKind kind) {
  if (handle == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto image = driver_abi::image_at(code);
  if (!image.ok()) return CUDA_ERROR_INVALID_IMAGE;
  *handle = mint(kind);
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  all.loaded[*handle].entries = entries_of(*image);
  return CUDA_SUCCESS;
}

CUresult unload(std::uint64_t handle) {
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  return all.loaded.erase(handle) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// The caller holds the lock.
std::uint64_t kernel_of(Images& all, std::uint64_t image, Loaded& loaded, const std::string& name,
                        HandleKind kind) {
  std::uint64_t& handle = loaded.kernels[name];
  if (handle == 0) {
    handle = mint(kind);
    Kernel kernel{image, {name, {}}, name};
    for (const KernelEntry& entry : loaded.entries) {
      if (entry.name == name) kernel.entry = entry;
    }
    all.kernels[handle] = std::move(kernel);
  }
  return handle;
}

CUresult get_kernel(std::uint64_t* handle, std::uint64_t image, const char* name, HandleKind kind) {
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  const auto loaded = all.loaded.find(image);
  if (loaded == all.loaded.end()) return CUDA_ERROR_INVALID_HANDLE;
  *handle = kernel_of(all, image, loaded->second, name, kind);
  return CUDA_SUCCESS;
}

CUresult count_kernels(unsigned* count, std::uint64_t image) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  const auto loaded = all.loaded.find(image);
  if (loaded == all.loaded.end()) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(loaded->second.entries.size());
  return CUDA_SUCCESS;
}

template <typename Handle>
CUresult list_kernels(Handle* out, unsigned room, std::uint64_t image, HandleKind kind) {
  if (out == nullptr && room != 0) return CUDA_ERROR_INVALID_VALUE;
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  const auto loaded = all.loaded.find(image);
  if (loaded == all.loaded.end()) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned i = 0; i < room && i < loaded->second.entries.size(); ++i) {
    const std::string name = loaded->second.entries[i].name;
    out[i] = reinterpret_cast<Handle>(kernel_of(all, image, loaded->second, name, kind));
  }
  return CUDA_SUCCESS;
}

CUresult variable(CUdeviceptr* dptr, std::size_t* bytes, std::uint64_t image, const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  const auto loaded = all.loaded.find(image);
  if (loaded == all.loaded.end()) return CUDA_ERROR_INVALID_HANDLE;
  auto& memory = loaded->second.variables[name];
  if (memory == nullptr) memory.reset(new unsigned char[kVariableBytes]());
  if (dptr != nullptr) *dptr = reinterpret_cast<CUdeviceptr>(memory.get());
  if (bytes != nullptr) *bytes = kVariableBytes;
  return CUDA_SUCCESS;
}

ManagedPages managed_pages(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return ManagedPages(memory == MAP_FAILED ? nullptr : static_cast<unsigned char*>(memory),
                      Unmap{bytes});
}

// Names that begin with "managed" are managed variables of 64 KiB. "managed_huge" has 3 GiB.
// "managed_low" and "managed_high" are halves of one line. "managed_in_context" exists only while a
// context is current. Each begins with 'm'.
CUresult managed_variable(CUdeviceptr* dptr, std::size_t* bytes, std::uint64_t image,
                          const std::string& name) {
  if (name.rfind("managed", 0) != 0) return CUDA_ERROR_NOT_FOUND;
  CUcontext current = nullptr;
  if (name == "managed_in_context" &&
      (api::cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const bool high = name == "managed_high", half = high || name == "managed_low";
  const std::size_t size = name == "managed_huge" ? kHugeBytes : half ? kHalfBytes : kVariableBytes;
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  const auto loaded = all.loaded.find(image);
  if (loaded == all.loaded.end()) return CUDA_ERROR_INVALID_HANDLE;
  auto& memory = loaded->second.managed[half ? "halves" : name];
  if (memory == nullptr) {
    memory = managed_pages(half ? kPageBytes : size);
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = 'm';
    if (half) memory.get()[kHalfBytes] = 'm';
  }
  if (dptr != nullptr)
    *dptr = reinterpret_cast<CUdeviceptr>(memory.get() + (high ? kHalfBytes : 0));
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

CUresult parameter_of(std::uint64_t handle, std::size_t index, std::size_t* offset,
                      std::size_t* bytes) {
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  const auto kernel = all.kernels.find(handle);
  if (kernel == all.kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto& parameters = kernel->second.entry.parameters;
  if (index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].offset;
  if (bytes != nullptr) *bytes = parameters[index].bytes;
  return CUDA_SUCCESS;
}

CUresult name_of(const char** name, std::uint64_t handle) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  const auto kernel = all.kernels.find(handle);
  if (kernel == all.kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->second.name.c_str();  // Kernels are never removed.
  return CUDA_SUCCESS;
}

CUresult attribute(int* value, CUfunction_attribute id) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (id) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = 86;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = 49152;
      break;
    default:
      *value = kLocalBytes;
      break;
  }
  return CUDA_SUCCESS;
}

template <typename Handle>
std::uint64_t number(Handle handle) {
  return reinterpret_cast<std::uint64_t>(handle);
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return load(reinterpret_cast<std::uint64_t*>(module), image, HandleKind::kModule);
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*,
                            void**) {
  return api::cuModuleLoadData(module, image);
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return api::cuModuleLoadData(module, fatCubin);
}
CUresult cuModuleUnload(CUmodule hmod) { return unload(number(hmod)); }
CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return get_kernel(reinterpret_cast<std::uint64_t*>(hfunc), number(hmod), name,
                    HandleKind::kFunction);
}
CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  return count_kernels(count, number(mod));
}
CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  return list_kernels(functions, numFunctions, number(mod), HandleKind::kFunction);
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  return variable(dptr, bytes, number(hmod), name);
}
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**,
                           unsigned int, CUlibraryOption*, void**, unsigned int) {
  return load(reinterpret_cast<std::uint64_t*>(library), code, HandleKind::kLibrary);
}
CUresult cuLibraryUnload(CUlibrary library) { return unload(number(library)); }
CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  return get_kernel(reinterpret_cast<std::uint64_t*>(pKernel), number(library), name,
                    HandleKind::kKernel);
}
CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  return count_kernels(count, number(lib));
}
CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  return list_kernels(kernels, numKernels, number(lib), HandleKind::kKernel);
}
CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return variable(dptr, bytes, number(library), name);
}
CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return managed_variable(dptr, bytes, number(library), name);
}
// One handle is both the library and its module in the only context that matters here.
CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pMod = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pFunc = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  return parameter_of(number(kernel), paramIndex, paramOffset, paramSize);
}
CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  return parameter_of(number(func), paramIndex, paramOffset, paramSize);
}
CUresult cuKernelGetName(const char** name, CUkernel hfunc) { return name_of(name, number(hfunc)); }
CUresult cuFuncGetName(const char** name, CUfunction hfunc) { return name_of(name, number(hfunc)); }
CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction) {
  return attribute(pi, attrib);
}
CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel, CUdevice) {
  return attribute(pi, attrib);
}
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

}  // namespace gpurun::null_device::api
