// Hidden LLVM: the emulated device brings and uses a hidden LLVM, whatever LLVM the program defines
// or has loaded (as TensorFlow does).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "driver_abi/cuda_abi.h"

// Names of LLVM that this program exports, so that every look-up finds them here first.
#define GPURUN_EXPORTED __attribute__((visibility("default"), used))
extern "C" {
GPURUN_EXPORTED void foreign_context() asm("_ZN4llvm11LLVMContextC1Ev");
GPURUN_EXPORTED void foreign_module() asm("_ZN4llvm6ModuleC1ENS_9StringRefERNS_11LLVMContextE");
void foreign_context() { std::abort(); }
void foreign_module() { std::abort(); }
}

namespace {

template <typename Function>
Function* get(void* library, const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}
#define CALL(name, ...) get(driver, #name, static_cast<decltype(&::name)>(nullptr))(__VA_ARGS__)

// The libraries that the device names as needed.
std::set<std::string> needed() {
  std::set<std::string> names;
  FILE* const pipe = popen("readelf -d --wide " EMULATED_CUDA, "r");
  char line[512];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) {
    const std::string text = line;
    const std::size_t begin = text.find('[');
    if (text.find("(NEEDED)") == std::string::npos || begin == std::string::npos) continue;
    names.insert(text.substr(begin + 1, text.find(']') - begin - 1));
  }
  if (pipe != nullptr) pclose(pipe);
  return names;
}

TEST(HiddenLlvm, DeviceNeedsNoSharedLlvm) {
  const std::set<std::string> names = needed();
  EXPECT_TRUE(names.contains("libc.so.6"));
  for (const std::string& name : names) {
    EXPECT_EQ(name.find("LLVM"), std::string::npos) << name;
    EXPECT_EQ(name.find("z3"), std::string::npos) << name;
  }
}

TEST(HiddenLlvm, CompilesKernelsBesideForeignLlvm) {
  ASSERT_NE(dlopen(SHARED_LLVM, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  setenv("GPURUN_EMULATED", "cache=off,tier=regions", 1);
  void* const driver = dlopen(EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  ASSERT_EQ(CALL(cuInit, 0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(CALL(cuDevicePrimaryCtxRetain, &context, 0), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuCtxSetCurrent, context), CUDA_SUCCESS);
  constexpr char kText[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry square(.param .u64 out) {
  .reg .b32 %r<3>; .reg .b64 %d<3>;
  ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, %r0;
  mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r1;
  ret;
})";
  CUmodule module = nullptr;
  CUfunction square = nullptr;
  ASSERT_EQ(CALL(cuModuleLoadData, &module, kText), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuModuleGetFunction, &square, module, "square"), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(CALL(cuMemAlloc_v2, &memory, 256), CUDA_SUCCESS);
  void* arguments[] = {&memory};
  ASSERT_EQ(CALL(cuLaunchKernel, square, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr),
            CUDA_SUCCESS);
  unsigned squares[64] = {};
  ASSERT_EQ(CALL(cuMemcpyDtoH_v2, squares, memory, sizeof squares), CUDA_SUCCESS);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(squares[i], i * i);
}

}  // namespace
