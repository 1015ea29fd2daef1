// Runtime: opens a libcudart and finds its functions.
#include "tests/programs/runtimes/runtime.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace {

void* find(void* library, const char* name) {
  void* const address = dlsym(library, name);
  if (address == nullptr) {
    std::printf("FAILED: the runtime has no %s\n", name);
    std::exit(1);
  }
  return address;
}

template <typename Function>
void find(void* library, const char* name, Function*& into) {
  into = reinterpret_cast<Function*>(find(library, name));
}

}  // namespace

Runtime::Runtime(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_GLOBAL)) {
  if (library_ == nullptr) {
    std::printf("FAILED: %s\n", dlerror());
    std::exit(1);
  }
#define FIND(name) find(library_, #name, name)
  FIND(cudaRuntimeGetVersion);
  FIND(cudaDriverGetVersion);
  FIND(cudaGetDeviceCount);
  FIND(cudaSetDevice);
  FIND(cudaGetDevice);
  FIND(cudaDeviceGetAttribute);
  FIND(cudaMemGetInfo);
  FIND(cudaDeviceSynchronize);
  FIND(cudaDeviceReset);
  FIND(cudaGetLastError);
  FIND(cudaPeekAtLastError);
  FIND(cudaGetErrorString);
  FIND(cudaGetErrorName);
  FIND(cudaMalloc);
  FIND(cudaFree);
  FIND(cudaMallocHost);
  FIND(cudaFreeHost);
  FIND(cudaMallocAsync);
  FIND(cudaFreeAsync);
  FIND(cudaMemcpy);
  FIND(cudaMemcpyAsync);
  FIND(cudaMemcpy2D);
  FIND(cudaMemcpyToSymbol);
  FIND(cudaMemset);
  FIND(cudaMemsetAsync);
  FIND(cudaStreamCreateWithFlags);
  FIND(cudaStreamDestroy);
  FIND(cudaStreamSynchronize);
  FIND(cudaStreamQuery);
  FIND(cudaStreamWaitEvent);
  FIND(cudaLaunchHostFunc);
  FIND(cudaStreamBeginCapture);
  FIND(cudaStreamEndCapture);
  FIND(cudaGraphLaunch);
  FIND(cudaGraphExecDestroy);
  FIND(cudaGraphDestroy);
  FIND(cudaEventCreate);
  FIND(cudaEventDestroy);
  FIND(cudaEventRecord);
  FIND(cudaEventSynchronize);
  FIND(cudaEventQuery);
  FIND(cudaEventElapsedTime);
  FIND(cudaFuncGetAttributes);
  FIND(cudaOccupancyMaxActiveBlocksPerMultiprocessor);
  FIND(cudaLaunchKernel);
  FIND(__cudaRegisterFatBinary);
  FIND(__cudaRegisterFatBinaryEnd);
  FIND(__cudaUnregisterFatBinary);
  FIND(__cudaRegisterFunction);
  FIND(__cudaRegisterVar);
#undef FIND
  if (cudaRuntimeGetVersion(&version_) != 0) std::exit(1);
  const bool second = dlsym(library_, "cudaGetDeviceProperties_v2") != nullptr;  // 12 only.
  find(library_, second ? "cudaGetDeviceProperties_v2" : "cudaGetDeviceProperties", properties_);
  instantiate_ = find(library_, "cudaGraphInstantiate");
}

// CUDA 12 dropped the node and the text of the error and has flags in their place.
int Runtime::instantiate(GraphExec* exec, Graph graph) const {
  if (version_ >= 12000) {
    return reinterpret_cast<int (*)(GraphExec*, Graph, unsigned long long)>(instantiate_)(exec,
                                                                                          graph, 0);
  }
  return reinterpret_cast<int (*)(GraphExec*, Graph, void**, char*, std::size_t)>(instantiate_)(
      exec, graph, nullptr, nullptr, 0);
}
