// loader LIBRARY ROUNDS: a program that does not link with CUDA. It opens the driver by name,
// closes it and opens it again, and computes in each round. With LARGE_THREAD_STORAGE each thread
// of the process, including ours, has a megabyte of thread-local variables, which the C library
// takes from its stack.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace {

template <typename Function>
Function* symbol(void* library, const char* name) {
  auto* found = reinterpret_cast<Function*>(dlsym(library, name));
  if (found == nullptr) {
    std::printf("FAILED: no %s\n", name);
    std::exit(1);
  }
  return found;
}

#ifdef LARGE_THREAD_STORAGE
thread_local unsigned char large[1 << 20];
#endif

int compute(void* library) {
#ifdef LARGE_THREAD_STORAGE
  for (std::size_t i = 0; i < sizeof large; i += 4096) large[i] = 1;
#endif
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  std::vector<unsigned char> got(4096);
  int result = symbol<decltype(cuInit)>(library, "cuInit")(0);
  if (result == 0) {
    result = symbol<decltype(cuDevicePrimaryCtxRetain)>(library, "cuDevicePrimaryCtxRetain")(
        &context, 0);
  }
  if (result == 0) result = symbol<decltype(cuCtxSetCurrent)>(library, "cuCtxSetCurrent")(context);
  if (result == 0) {
    result = symbol<decltype(cuMemAlloc_v2)>(library, "cuMemAlloc_v2")(&memory, got.size());
  }
  if (result == 0) {
    result = symbol<decltype(cuMemsetD8_v2)>(library, "cuMemsetD8_v2")(memory, 5, got.size());
  }
  if (result == 0) {
    result = symbol<decltype(cuMemcpyDtoH_v2)>(library, "cuMemcpyDtoH_v2")(got.data(), memory,
                                                                           got.size());
  }
  if (result == 0 && got[4095] != 5) result = -1;
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (int round = std::atoi(argv[2]); round > 0; --round) {
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::printf("FAILED: %s\n", dlerror());
      return 1;
    }
    const int result = compute(library);
    std::printf("result %d\n", result);
    if (dlclose(library) != 0) return 1;
  }
  std::printf("PASSED\n");
  return 0;
}
