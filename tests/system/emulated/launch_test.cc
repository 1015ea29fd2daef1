// Modules and launches of the emulated device, through the driver API. Covers what loads, the error
// of each wrong launch, and a kernel's fault, which stays with its context and ends with it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "tests/support/images/object_builder.h"

namespace {

// Two devices. The watchdog ends a kernel after one second.
void* library() {
  static void* const opened = [] {
    setenv("GPURUN_EMULATED", "devices=2,memory=256MiB,watchdog=1,watchdog_kills=1,cache=off", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return dlopen(EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
  }();
  return opened;
}

template <typename Function>
Function* get(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(library(), name));
}
#define CALL(name, ...) get(#name, static_cast<decltype(&::name)>(nullptr))(__VA_ARGS__)

constexpr char kPtx[] = R"(.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 counter = 7;
.visible .entry store(.param .u64 out, .param .u32 value, .param .align 8 .b8 unused[24])
{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry small() .maxntid 64, 1, 1 { ret; }
.visible .entry exact() .reqntid 8, 4, 1 { ret; }
.visible .entry stop() { trap; }
.visible .entry spin()
{
  .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>;
  mov.u64 %rd1, counter;
again:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
// Stores 7, by a multimem instruction if `how` is not 0.
.visible .entry by_multicast(.param .u64 out, .param .u32 how)
{
  .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [how];
  setp.ne.u32 %p1, %r1, 0;
  mov.u32 %r2, 7;
  @%p1 multimem.red.relaxed.sys.add.u32 [%rd1], %r2;
  @%p1 multimem.ld_reduce.acquire.sys.global.min.u64 %rd2, [%rd1];
  st.global.u32 [%rd1], %r2;
  ret;
}
.visible .entry odd() { .reg .b32 %r<2>; tcgen05.wait::ld.sync.aligned; ret; }
)";

// Stores its number of threads. .language is that of kernels that tileiras compiles.
constexpr char kTilePtx[] = R"(.version 9.4
.target sm_80
.address_size 64
.visible .entry tiles(.param .u64 out) .reqntid 8 .language 7
{
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %ntid.x;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

class EmulatedLaunch : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(library(), nullptr) << dlerror();
    ASSERT_EQ(CALL(cuInit, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxCreate_v2, &context_, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuModuleLoadData, &module_, kPtx), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuMemAlloc_v2, &memory_, 4096), CUDA_SUCCESS);
    store_ = function("store");
  }
  void TearDown() override { EXPECT_EQ(CALL(cuCtxDestroy_v2, context_), CUDA_SUCCESS); }

  CUfunction function(const char* name) {
    CUfunction found = nullptr;
    EXPECT_EQ(CALL(cuModuleGetFunction, &found, module_, name), CUDA_SUCCESS) << name;
    return found;
  }
  CUresult launch(const char* name, unsigned grid = 1, unsigned block = 1, unsigned shared = 0,
                  CUstream stream = nullptr) {
    return CALL(cuLaunchKernel, function(name), grid, 1, 1, block, 1, 1, shared, stream, nullptr,
                nullptr);
  }
  // Stores 5 at `address` through the given form of parameters.
  CUresult store(CUdeviceptr address) {
    unsigned value = 5;
    char unused[24] = "";
    void* parameters[] = {&address, &value, unused};
    return CALL(cuLaunchKernel, store_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  }
  unsigned word(CUdeviceptr address) {
    unsigned value = 0;
    EXPECT_EQ(CALL(cuMemcpyDtoH_v2, &value, address, sizeof value), CUDA_SUCCESS);
    return value;
  }
  // Every call must return the error until the context is gone. A new context must work.
  void expect_sticky(CUresult error) {
    EXPECT_EQ(CALL(cuCtxSynchronize), error);
    CUdeviceptr more = 0;
    EXPECT_EQ(CALL(cuMemAlloc_v2, &more, 64), error);
    EXPECT_EQ(store(memory_), error);
    CUcontext other = nullptr;
    ASSERT_EQ(CALL(cuCtxCreate_v2, &other, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuMemAlloc_v2, &more, 64), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuCtxSynchronize), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuCtxDestroy_v2, other), CUDA_SUCCESS);
  }

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction store_ = nullptr;
  CUdeviceptr memory_ = 0;
};

// cuda.h, CU_LAUNCH_KERNEL_REQUIRED_BLOCK_DIM. cuTile launches its kernels like that.
TEST_F(EmulatedLaunch, TileKernelLaunchedWithOneThreadGetsItsRequiredBlock) {
  CUmodule module = nullptr;
  CUfunction tiles = nullptr;
  ASSERT_EQ(CALL(cuModuleLoadData, &module, kTilePtx), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuModuleGetFunction, &tiles, module, "tiles"), CUDA_SUCCESS);
  const auto threads_with = [&](unsigned block) {
    void* parameters[] = {&memory_};
    EXPECT_EQ(CALL(cuMemsetD32_v2, memory_, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuLaunchKernel, tiles, 1, 1, 1, block, 1, 1, 0, nullptr, parameters, nullptr),
              block == 4 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    return word(memory_);
  };
  EXPECT_EQ(threads_with(1), 8u);
  EXPECT_EQ(threads_with(8), 8u);
  EXPECT_EQ(threads_with(4), 0u);
  EXPECT_EQ(launch("exact", 1, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(EmulatedLaunch, AcceptsBothParameterForms) {
  EXPECT_EQ(store(memory_), CUDA_SUCCESS);
  EXPECT_EQ(word(memory_), 5U);
  struct {
    CUdeviceptr out;
    unsigned value;
    alignas(8) char unused[24];
  } block{memory_ + 4, 9, ""};
  std::size_t bytes = sizeof block;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  EXPECT_EQ(CALL(cuLaunchKernel, function("store"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra),
            CUDA_SUCCESS);
  EXPECT_EQ(word(memory_ + 4), 9U);
  block.value = 6;
  bytes = 12;  // The last parameter is left out.
  EXPECT_EQ(CALL(cuLaunchKernel, function("store"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra),
            CUDA_SUCCESS);
  EXPECT_EQ(word(memory_ + 4), 6U);
  bytes = 0;
  EXPECT_EQ(CALL(cuLaunchKernel, function("store"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch("store"), CUDA_ERROR_INVALID_VALUE);  // No parameters at all.
}

TEST_F(EmulatedLaunch, DescribesFunctionsAndVariables) {
  std::size_t offset = 0, bytes = 0;
  EXPECT_EQ(CALL(cuFuncGetParamInfo, function("store"), 2, &offset, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(offset, 16U);
  EXPECT_EQ(bytes, 24U);
  EXPECT_EQ(CALL(cuFuncGetParamInfo, function("store"), 3, &offset, &bytes),
            CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  EXPECT_EQ(
      CALL(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function("small")),
      CUDA_SUCCESS);
  EXPECT_EQ(value, 64);
  EXPECT_EQ(CALL(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_PTX_VERSION, function("small")),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 80);
  CUdeviceptr counter = 0;
  EXPECT_EQ(CALL(cuModuleGetGlobal_v2, &counter, &bytes, module_, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 4U);
  EXPECT_EQ(word(counter), 7U);
  EXPECT_EQ(CALL(cuModuleGetGlobal_v2, &counter, &bytes, module_, "no"), CUDA_ERROR_NOT_FOUND);
  CUfunction none = nullptr;
  EXPECT_EQ(CALL(cuModuleGetFunction, &none, module_, "no"), CUDA_ERROR_NOT_FOUND);
}

TEST_F(EmulatedLaunch, InvalidLaunchesReturnCudaCodes) {
  EXPECT_EQ(launch("stop", 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch("stop", 1, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch("stop", 1, 1, 49 << 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch("small", 1, 65), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(launch("exact", 1, 32), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch("stop", 1, 1, 0, reinterpret_cast<CUstream>(0x1234)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(CALL(cuLaunchKernel, reinterpret_cast<CUfunction>(memory_), 1, 1, 1, 1, 1, 1, 0,
                 nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(CALL(cuLaunchCooperativeKernel, function("small"), 100000, 1, 1, 64, 1, 1, 0, nullptr,
                 nullptr),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {2, 1, 1};
  CUlaunchConfig config{};
  config.gridDimX = 3, config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  EXPECT_EQ(CALL(cuLaunchKernelEx, &config, function("small"), nullptr, nullptr),
            CUDA_ERROR_INVALID_CLUSTER_SIZE);
  // With clusters of one block its result would be wrong, so it is refused with a message.
  config.gridDimX = 4;
  testing::internal::CaptureStderr();
  EXPECT_EQ(CALL(cuLaunchKernelEx, &config, function("small"), nullptr, nullptr),
            CUDA_ERROR_NOT_SUPPORTED);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("kernel small wants clusters of 2x1x1 blocks"), std::string::npos) << said;
  cluster.value.clusterDim = {1, 1, 1};
  EXPECT_EQ(CALL(cuLaunchKernelEx, &config, function("small"), nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuCtxSynchronize), CUDA_SUCCESS);
  // The attribute allows more dynamic shared memory, up to the device's limit.
  EXPECT_EQ(CALL(cuFuncSetAttribute, function("small"),
                 CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 99 << 10),
            CUDA_SUCCESS);
  EXPECT_EQ(launch("small", 1, 1, 99 << 10), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuFuncSetAttribute, function("small"),
                 CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(EmulatedLaunch, RefusesInvalidImagesAndKernels) {
  CUmodule module = nullptr;
  CUfunction found = nullptr;
  EXPECT_EQ(CALL(cuModuleLoadData, &module, ".version 8.0\n.target sm_80\n.bogus x;\n"),
            CUDA_ERROR_INVALID_PTX);
  // An unknown instruction affects only its kernel, and the message names it.
  testing::internal::CaptureStderr();
  EXPECT_EQ(CALL(cuModuleGetFunction, &found, module_, "odd"), CUDA_ERROR_INVALID_PTX);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("odd"), std::string::npos) << said;
  EXPECT_NE(said.find("tcgen05"), std::string::npos) << said;
  // Listing the kernels prints no message about this one. Getting it from a library prints one
  // message.
  CUlibrary all = nullptr;
  CUkernel kernels[7] = {};
  CUfunction functions[7] = {};
  CUkernel kernel = nullptr;
  unsigned count = 0;
  ASSERT_EQ(CALL(cuLibraryLoadData, &all, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  testing::internal::CaptureStderr();
  EXPECT_EQ(CALL(cuModuleEnumerateFunctions, functions, 7, module_), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuLibraryGetKernelCount, &count, all), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuLibraryEnumerateKernels, kernels, 7, all), CUDA_SUCCESS);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_NE(kernels[5], nullptr);
  EXPECT_EQ(kernels[6], nullptr);
  testing::internal::CaptureStderr();
  EXPECT_EQ(CALL(cuLibraryGetKernel, &kernel, all, "odd"), CUDA_ERROR_INVALID_PTX);
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_EQ(CALL(cuLibraryUnload, all), CUDA_SUCCESS);
  // The smallest ELF image. Machine code loads, but none of its kernels runs here.
  unsigned char elf[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33};
  elf[52] = 64;  // e_ehsize
  EXPECT_EQ(CALL(cuModuleLoadData, &module, elf), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuModuleGetFunction, &found, module, "any"), CUDA_ERROR_NO_BINARY_FOR_GPU);
  char log[256] = "unset";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  EXPECT_EQ(CALL(cuModuleLoadDataEx, &module, ".version 8.0\n.target sm_80\n.bogus x;\n", 2,
                 options, values),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(reinterpret_cast<std::size_t>(values[1]), std::strlen(log));
  EXPECT_GT(std::strlen(log), 5U);
}

TEST_F(EmulatedLaunch, FaultIsStickyInContext) {
  EXPECT_EQ(store(8), CUDA_SUCCESS);  // Detected when it runs.
  expect_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(EmulatedLaunch, TrapReturnsLaunchFailed) {
  EXPECT_EQ(launch("stop"), CUDA_SUCCESS);
  expect_sticky(CUDA_ERROR_LAUNCH_FAILED);
}

// The device has no multicast objects. A kernel may hold instructions for them, as NCCL's do.
TEST_F(EmulatedLaunch, MultimemFaultsOnlyWhereItIsExecuted) {
  unsigned how = 0;
  void* arguments[] = {&memory_, &how};
  const auto run = [&] {
    return CALL(cuLaunchKernel, function("by_multicast"), 1, 1, 1, 1, 1, 1, 0, nullptr, arguments,
                nullptr);
  };
  EXPECT_EQ(run(), CUDA_SUCCESS);
  EXPECT_EQ(word(memory_), 7U);
  how = 1;
  EXPECT_EQ(run(), CUDA_SUCCESS);
  expect_sticky(CUDA_ERROR_LAUNCH_FAILED);
}

// A store one byte beyond an allocation hits the guard behind it.
TEST_F(EmulatedLaunch, StoreBeyondAllocationFaults) {
  EXPECT_EQ(store(memory_ + 4096), CUDA_SUCCESS);
  expect_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(EmulatedLaunch, WatchdogEndsLongKernel) {
  EXPECT_EQ(launch("spin"), CUDA_SUCCESS);
  expect_sticky(CUDA_ERROR_LAUNCH_TIMEOUT);
}

// A fault ends the context's other kernels too: one of them would spin for ever.
TEST_F(EmulatedLaunch, FaultEndsOtherKernelsOfContext) {
  CUstream stream = nullptr;
  ASSERT_EQ(CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(launch("spin", 1, 1, 0, stream), CUDA_SUCCESS);
  EXPECT_EQ(launch("stop"), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuStreamSynchronize, stream), CUDA_ERROR_LAUNCH_FAILED);
}

// A library is code without a context. Its kernel runs in the current context.
TEST_F(EmulatedLaunch, LibraryLoadsIntoEachContext) {
  CUlibrary library_handle = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_EQ(
      CALL(cuLibraryLoadData, &library_handle, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0),
      CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuLibraryGetKernel, &kernel, library_handle, "store"), CUDA_SUCCESS);
  unsigned count = 0;
  EXPECT_EQ(CALL(cuLibraryGetKernelCount, &count, library_handle), CUDA_SUCCESS);
  EXPECT_EQ(count, 7U);
  for (CUdevice device = 0; device < 2; ++device) {
    CUcontext other = nullptr;
    CUdeviceptr there = 0, counter = 0;
    std::size_t bytes = 0;
    ASSERT_EQ(CALL(cuCtxCreate_v2, &other, 0, device), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuMemAlloc_v2, &there, 64), CUDA_SUCCESS);
    unsigned value = 30 + static_cast<unsigned>(device);
    char unused[24] = "";
    void* parameters[] = {&there, &value, unused};
    EXPECT_EQ(CALL(cuLaunchKernel, reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0,
                   nullptr, parameters, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(word(there), value);
    EXPECT_EQ(CALL(cuLibraryGetGlobal, &counter, &bytes, library_handle, "counter"), CUDA_SUCCESS);
    EXPECT_EQ(word(counter), 7U);
    CUfunction function_here = nullptr;
    EXPECT_EQ(CALL(cuKernelGetFunction, &function_here, kernel), CUDA_SUCCESS);
    EXPECT_NE(function_here, nullptr);
    EXPECT_EQ(CALL(cuCtxDestroy_v2, other), CUDA_SUCCESS);
  }
  EXPECT_EQ(CALL(cuLibraryUnload, library_handle), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuLibraryUnload, library_handle), CUDA_ERROR_INVALID_HANDLE);
  CUfunction gone = nullptr;
  EXPECT_EQ(CALL(cuKernelGetFunction, &gone, kernel), CUDA_ERROR_INVALID_HANDLE);
}

// One kernel in two contexts by turns: in each it is that context's function. The last launch and
// the end of a context do not change that.
TEST_F(EmulatedLaunch, LibraryKernelHasFunctionForEachContext) {
  CUlibrary library_handle = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_EQ(
      CALL(cuLibraryLoadData, &library_handle, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0),
      CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuLibraryGetKernel, &kernel, library_handle, "small"), CUDA_SUCCESS);
  for (int round = 0; round < 2; ++round) {
    CUcontext other = nullptr;
    CUfunction here = nullptr, there = nullptr;
    ASSERT_EQ(CALL(cuCtxCreate_v2, &other, 0, 0), CUDA_SUCCESS);
    for (int turn = 0; turn < 4; ++turn) {
      const bool first = turn % 2 == 0;
      ASSERT_EQ(CALL(cuCtxSetCurrent, first ? context_ : other), CUDA_SUCCESS);
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(CALL(cuLaunchKernel, reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0,
                       nullptr, nullptr, nullptr),
                  CUDA_SUCCESS);
      }
      EXPECT_EQ(CALL(cuKernelGetFunction, first ? &here : &there, kernel), CUDA_SUCCESS);
    }
    EXPECT_NE(here, there);
    EXPECT_EQ(CALL(cuCtxDestroy_v2, other), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxSetCurrent, context_), CUDA_SUCCESS);
  }
  EXPECT_EQ(CALL(cuLibraryUnload, library_handle), CUDA_SUCCESS);
}

// Two texts that need each other, as when a program links a library's PTX to its own.
TEST_F(EmulatedLaunch, LinksPtxTexts) {
  static const char kCaller[] = R"(.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) triple(.param .b32 value);
.visible .entry caller(.param .u64 out)
{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [out];
  { .param .b32 value; .param .b32 result;
    st.param.b32 [value], 14;
    call.uni (result), triple, (value);
    ld.param.b32 %r1, [result]; }
  st.global.u32 [%rd1], %r1;
  ret;
})";
  static const char kCallee[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 result) triple(.param .b32 value)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [value];
  mul.lo.s32 %r2, %r1, 3;
  st.param.b32 [result], %r2;
  ret;
})";
  CUlinkState link = nullptr;
  void* image = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(CALL(cuLinkCreate_v2, 0, nullptr, nullptr, &link), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, const_cast<char*>(kCaller),
                 sizeof kCaller, "caller", 0, nullptr, nullptr),
            CUDA_SUCCESS);
  // As nvcc -rdc=true leaves it in a library.
  std::string library = gpurun::test::build_archive({gpurun::test::build_object(
      {{"__nv_relfatbin", gpurun::test::build_container({{.content = std::string(kCallee)}})}})});
  EXPECT_EQ(CALL(cuLinkAddData_v2, link, CU_JIT_INPUT_LIBRARY, library.data(), library.size(),
                 "callee", 0, nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuLinkAddData_v2, link, CU_JIT_INPUT_OBJECT, const_cast<char*>(kCallee), 8, "o", 0,
                 nullptr, nullptr),
            CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(CALL(cuLinkAddData_v2, link, CU_JIT_INPUT_NVVM, const_cast<char*>(kCallee), 8, "o", 0,
                 nullptr, nullptr),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  // add refuses text that is not PTX.
  char broken[] = "this is no code at all";
  EXPECT_EQ(CALL(cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, broken, sizeof broken, "b", 0, nullptr,
                 nullptr),
            CUDA_ERROR_INVALID_PTX);
  ASSERT_EQ(CALL(cuLinkComplete, link, &image, &bytes), CUDA_SUCCESS);
  CUmodule linked = nullptr;
  CUfunction caller = nullptr;
  EXPECT_GT(bytes, sizeof kCaller);
  ASSERT_EQ(CALL(cuModuleLoadData, &linked, image), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuLinkDestroy, link), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuModuleGetFunction, &caller, linked, "caller"), CUDA_SUCCESS);
  void* parameters[] = {&memory_};
  EXPECT_EQ(CALL(cuLaunchKernel, caller, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(word(memory_), 42U);
}

// The state has one log for its whole life. Each refusal is appended, as far as there is room.
TEST_F(EmulatedLaunch, LinkAppendsErrorsToItsLog) {
  char error[80], info[8] = "info";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_WALL_TIME};
  void* values[] = {error, reinterpret_cast<void*>(sizeof error), info,
                    reinterpret_cast<void*>(sizeof info), nullptr};
  const auto filled = [&values] { return reinterpret_cast<std::uintptr_t>(values[1]); };
  CUlinkState link = nullptr;
  ASSERT_EQ(CALL(cuLinkCreate_v2, 5, options, values, &link), CUDA_SUCCESS);
  EXPECT_EQ(filled(), sizeof error);
  char broken[] = "this is no code at all";
  std::size_t before = 0;
  for (const char* name : {"one", "two"}) {
    EXPECT_EQ(CALL(cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, broken, sizeof broken, name, 0,
                   nullptr, nullptr),
              CUDA_ERROR_INVALID_PTX);
    EXPECT_NE(std::strstr(error, name), nullptr) << error;
    EXPECT_EQ(filled(), std::strlen(error));
    EXPECT_GT(filled(), before);
    before = filled();
  }
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(CALL(cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, broken, sizeof broken, "more", 0,
                   nullptr, nullptr),
              CUDA_ERROR_INVALID_PTX);
  }
  EXPECT_EQ(filled(), sizeof error - 1);
  EXPECT_EQ(std::strlen(error), sizeof error - 1);
  EXPECT_STREQ(info, "");
  float milliseconds = 0;
  std::memcpy(&milliseconds, &values[4], sizeof milliseconds);
  EXPECT_GT(milliseconds, 0);
  EXPECT_EQ(CALL(cuLinkDestroy, link), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuLinkDestroy, link), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(EmulatedLaunch, ReturnsOccupancy) {
  int blocks = 0;
  EXPECT_EQ(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function("small"), 64, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(blocks, 24);  // 1536 threads.
  EXPECT_EQ(
      CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function("small"), 64, 24 << 10),
      CUDA_SUCCESS);
  EXPECT_EQ(blocks, 4);  // 100 KiB of shared memory.
  int grid = 0, block = 0;
  EXPECT_EQ(CALL(cuOccupancyMaxPotentialBlockSize, &grid, &block, function("stop"), nullptr, 0, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(block, 768);
  EXPECT_EQ(grid, 16);
}

}  // namespace
