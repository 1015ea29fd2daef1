// Hidden LLVM: the emulated device brings and uses a hidden LLVM, whatever LLVM the program defines
// or has loaded (as TensorFlow does). The end of the process does not destroy its tables, and so
// does not wait for a compilation.
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

// A destructor of LLVM's tables would be registered by this function of the C library.
TEST(HiddenLlvm, DeviceRegistersNoExitHandler) {
  FILE* const pipe = popen("nm -D --undefined-only " EMULATED_CUDA, "r");
  ASSERT_NE(pipe, nullptr);
  bool has_memory = false;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    const std::string text = line;
    has_memory = has_memory || text.find(" malloc") != std::string::npos;
    EXPECT_EQ(text.find(" __cxa_atexit"), std::string::npos) << text;
    EXPECT_EQ(text.find(" atexit"), std::string::npos) << text;
  }
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_TRUE(has_memory) << "nm has listed nothing";
}

// Its quick code runs for longer than it takes to be hot.
std::string hot_kernel() {
  std::string text = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry hot(.param .u64 out) {
  .reg .b32 %r<8>; .reg .b64 %d; .reg .pred %p;
  ld.param.u64 %d, [out]; mov.u32 %r0, 0; mov.u32 %r1, %tid.x; mov.u32 %r2, 3; mov.u32 %r3, 5;
again:
)";
  for (int i = 0; i < 4000; ++i) {
    const std::string to = std::to_string(1 + i % 3), from = std::to_string(1 + (i + 1) % 3);
    text += "mad.lo.u32 %r" + to + ", %r" + from + ", 77, %r" + to + ";\n";
  }
  return text +
         "add.u32 %r0, %r0, 1; setp.lt.u32 %p, %r0, 4000;\n@%p bra again;\n"
         "st.global.u32 [%d], %r1; ret; }\n";
}

[[noreturn]] void exit_while_compiling() {
  setenv("GPURUN_EMULATED", "cache=off", 1);
  void* const driver = dlopen(EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction hot = nullptr;
  CUdeviceptr memory = 0;
  void* arguments[] = {&memory};
  const bool ran = driver != nullptr && CALL(cuInit, 0) == CUDA_SUCCESS &&
                   CALL(cuDevicePrimaryCtxRetain, &context, 0) == CUDA_SUCCESS &&
                   CALL(cuCtxSetCurrent, context) == CUDA_SUCCESS &&
                   CALL(cuModuleLoadData, &module, hot_kernel().c_str()) == CUDA_SUCCESS &&
                   CALL(cuModuleGetFunction, &hot, module, "hot") == CUDA_SUCCESS &&
                   CALL(cuMemAlloc_v2, &memory, 256) == CUDA_SUCCESS &&
                   CALL(cuLaunchKernel, hot, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr) ==
                       CUDA_SUCCESS &&
                   CALL(cuCtxSynchronize) == CUDA_SUCCESS;
  std::exit(ran ? 0 : 1);
}

TEST(HiddenLlvmDeathTest, ProcessExitsDuringCompilation) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_while_compiling(), testing::ExitedWithCode(0), "");
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
