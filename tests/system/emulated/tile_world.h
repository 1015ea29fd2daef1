// TileWorld: the emulated device's libcuda with one context, for tests that load Tile IR.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace gpurun::test {

// The path of the library, which the build passes to tile_ir_test.cc.
extern const char* const kEmulatedCuda;

inline void* emulated_library() {
  static void* const opened = [] {
    setenv("GPURUN_EMULATED", "memory=256MiB,cache=off", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return dlopen(kEmulatedCuda, RTLD_NOW | RTLD_LOCAL);
  }();
  return opened;
}

template <typename Function>
Function* emulated_function(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(emulated_library(), name));
}
#define CALL(name, ...) \
  ::gpurun::test::emulated_function(#name, static_cast<decltype(&::name)>(nullptr))(__VA_ARGS__)

class TileWorld : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(emulated_library(), nullptr) << dlerror();
    ASSERT_EQ(CALL(cuInit, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxCreate_v2, &context_, 0, 0), CUDA_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(CALL(cuCtxDestroy_v2, context_), CUDA_SUCCESS); }

  CUresult load(const std::string& image) {
    const std::string followed = image + "what stands behind it";
    return CALL(cuLibraryLoadData, &code_, followed.data(), nullptr, nullptr, 0, nullptr, nullptr,
                0);
  }
  CUresult run(const char* kernel, unsigned x, unsigned y, void** arguments, unsigned threads = 1) {
    CUkernel found = nullptr;
    if (const CUresult result = CALL(cuLibraryGetKernel, &found, code_, kernel); result != 0) {
      return result;
    }
    const CUresult result = CALL(cuLaunchKernel, reinterpret_cast<CUfunction>(found), x, y, 1,
                                 threads, 1, 1, 0, nullptr, arguments, nullptr);
    return result != CUDA_SUCCESS ? result : CALL(cuCtxSynchronize);
  }
  template <typename T>
  CUdeviceptr device(const std::vector<T>& values) {
    CUdeviceptr address = 0;
    const std::size_t bytes = values.size() * sizeof(T);
    EXPECT_EQ(CALL(cuMemAlloc_v2, &address, bytes), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuMemcpyHtoD_v2, address, values.data(), bytes), CUDA_SUCCESS);
    return address;
  }
  template <typename T>
  std::vector<T> host(CUdeviceptr address, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(CALL(cuMemcpyDtoH_v2, values.data(), address, count * sizeof(T)), CUDA_SUCCESS);
    return values;
  }

  CUlibrary code_ = nullptr;
  CUcontext context_ = nullptr;
};

}  // namespace gpurun::test
