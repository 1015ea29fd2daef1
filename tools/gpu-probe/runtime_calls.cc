// RuntimeCalls: replaces dlsym() for the runtime, and the functions that it gets through it.
#include "runtime_calls.h"

#include <dlfcn.h>

#include <cstring>
#include <utility>

#include "answer.h"

// Functions around a launch that have only one version, so that each caller gets the same type.
#define GPURUN_RECORDED(each)                                                                 \
  each(cuLaunchKernel) each(cuLaunchKernelEx) each(cuLaunchCooperativeKernel)                 \
      each(cuKernelGetFunction) each(cuKernelGetAttribute) each(cuFuncGetAttribute)           \
          each(cuDeviceGetAttribute) each(cuCtxGetCurrent) each(cuCtxGetFlags)                \
              each(cuOccupancyMaxActiveBlocksPerMultiprocessor)                               \
                  each(cuOccupancyMaxPotentialClusterSize) each(cuOccupancyMaxActiveClusters) \
                      each(cuGetErrorName) each(cuGetErrorString) each(cuKernelGetParamInfo)  \
                          each(cuFuncGetParamInfo) each(cuFuncGetModule) each(cuFuncIsLoaded) \
                              each(cuFuncLoad) each(cuStreamIsCapturing) each(cuDeviceGet)

namespace gpurun::probe::runtime_calls {
namespace {

bool g_recording = false;
std::vector<std::string> g_calls;
decltype(&::cuGetProcAddress_v2) g_get_proc_address = nullptr;

// One recorded function. `Tag` distinguishes functions of one type.
template <typename Tag, typename Type>
struct Recorded;
template <typename Tag, typename... Arguments>
struct Recorded<Tag, CUresult (*)(Arguments...)> {
  static inline CUresult (*real)(Arguments...) = nullptr;
  static CUresult call(Arguments... arguments) {
    const CUresult result = real(arguments...);
    g_calls.push_back(std::string(Tag::kName) + " " + std::to_string(static_cast<int>(result)) +
                      " " + result_name(result));
    return result;
  }
};
#define GPURUN_TAG(name)                   \
  struct Tag_##name {                      \
    static constexpr char kName[] = #name; \
  };
GPURUN_RECORDED(GPURUN_TAG)

CUresult get_proc_address(const char* symbol, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  const CUresult result = g_get_proc_address(symbol, function, version, flags, status);
  // The variants for per-thread default streams are not recorded, because the question does not use
  // them.
  if (result != CUDA_SUCCESS || (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0) {
    return result;
  }
  // The runtime also gets this function itself, and uses the result for its next lookups.
  if (std::strcmp(symbol, "cuGetProcAddress") == 0 && version >= 12000) {
    *function = reinterpret_cast<void*>(&get_proc_address);
    return result;
  }
#define GPURUN_REPLACE(name)                                     \
  if (std::strcmp(symbol, #name) == 0) {                         \
    using Call = Recorded<Tag_##name, decltype(&::name)>;        \
    Call::real = reinterpret_cast<decltype(&::name)>(*function); \
    *function = reinterpret_cast<void*>(&Call::call);            \
  }
  GPURUN_RECORDED(GPURUN_REPLACE)
  return result;
}

}  // namespace

void record() { g_recording = true; }

std::vector<std::string> take() { return std::exchange(g_calls, {}); }

// The result of dlsym() for `found`.
void* replaced(const char* symbol, void* found) {
  if (!g_recording || found == nullptr || std::strcmp(symbol, "cuGetProcAddress_v2") != 0) {
    return found;
  }
  g_get_proc_address = reinterpret_cast<decltype(&::cuGetProcAddress_v2)>(found);
  return reinterpret_cast<void*>(&get_proc_address);
}

}  // namespace gpurun::probe::runtime_calls

#if !defined(GPURUN_ASAN) && !defined(GPURUN_TSAN)  // The sanitizers have a dlsym() of their own.
extern "C" __attribute__((visibility("default"))) void* dlsym(void* library,
                                                              const char* symbol) noexcept {
  using Find = void* (*)(void*, const char*);
  static const Find find = reinterpret_cast<Find>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  return gpurun::probe::runtime_calls::replaced(symbol, find(library, symbol));
}
#endif
