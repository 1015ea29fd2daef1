// Emulated driver library: libcuda.so.1, opened by its path as a worker or a program opens it. It
// exports CUDA's functions and nothing else. Covers state, streams, events and wrong calls.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/emulated_view.h"
#include "driver_abi/row.h"

namespace {

void* library() {
  static void* const opened = [] {
    setenv("GPURUN_EMULATED", "devices=2,memory=256MiB,capability=9.0", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return dlopen(EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
  }();
  return opened;
}

template <typename Function>
Function* get(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(library(), name));
}
// Only the type comes from cuda.h. The test does not link CUDA.
#define CALL(name, ...) get(#name, static_cast<decltype(&::name)>(nullptr))(__VA_ARGS__)

// The words that `command` prints.
std::set<std::string> words_of(const std::string& command) {
  std::set<std::string> words;
  FILE* const pipe = popen(command.c_str(), "r");
  char word[256];
  while (pipe != nullptr && std::fscanf(pipe, "%255s", word) == 1) words.insert(word);
  if (pipe != nullptr) pclose(pipe);
  return words;
}

TEST(EmulatedLibrary, ExportsOnlyDriverFunctions) {
  std::set<std::string> expected;
  for (const auto& row : gpurun::driver_abi::rows()) expected.insert(row.symbol);
  EXPECT_GE(expected.size(), 723U);
  EXPECT_EQ(words_of("nm -D --extern-only --defined-only --format=just-symbols " EMULATED_CUDA),
            expected);
}

TEST(EmulatedLibrary, RefusesCallsBeforeInitialisation) {
  ASSERT_NE(library(), nullptr) << dlerror();
  // In a process of its own, because the other tests initialise this one.
  EXPECT_EXIT(
      {
        int count = 0;
        std::exit(CALL(cuDeviceGetCount, &count));
      },
      testing::ExitedWithCode(CUDA_ERROR_NOT_INITIALIZED), "");
}

// Initialised, with a context of device 0 current.
class EmulatedDriver : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(library(), nullptr) << dlerror();
    ASSERT_EQ(CALL(cuInit, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxCreate_v2, &context_, 0, 0), CUDA_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(CALL(cuCtxDestroy_v2, context_), CUDA_SUCCESS); }

  CUcontext context_ = nullptr;
};

TEST_F(EmulatedDriver, ReportsDeviceProperties) {
  int count = 0, major = 0, cannot = 0;
  EXPECT_EQ(CALL(cuDeviceGetCount, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(CALL(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(major, 9);
  size_t bytes = 0;
  EXPECT_EQ(CALL(cuDeviceTotalMem_v2, &bytes, 0), CUDA_SUCCESS);
  EXPECT_EQ(bytes, size_t{256} << 20);
  EXPECT_EQ(CALL(cuDeviceGetAttribute, &cannot, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2),
            CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(EmulatedDriver, EventOrdersCopiesOfTwoStreams) {
  constexpr size_t kBytes = 1 << 20;
  CUdeviceptr first = 0, second = 0;
  CUstream one = nullptr, two = nullptr;
  CUevent start = nullptr, filled = nullptr, end = nullptr;
  ASSERT_EQ(CALL(cuMemAlloc_v2, &first, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuMemAlloc_v2, &second, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuStreamCreate, &one, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuStreamCreate, &two, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  for (CUevent* event : {&start, &filled, &end}) {
    ASSERT_EQ(CALL(cuEventCreate, event, 0), CUDA_SUCCESS);
  }
  std::vector<unsigned char> out(kBytes, 0x5a), back(kBytes, 0);
  // In the copying stream, because a non-blocking stream does not wait for the legacy one.
  EXPECT_EQ(CALL(cuMemsetD8Async, second, 0xff, kBytes, two), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuEventRecord, start, one), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemcpyHtoDAsync_v2, first, out.data(), kBytes, one), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuEventRecord, filled, one), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuStreamWaitEvent, two, filled, 0), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemcpyDtoDAsync_v2, second, first, kBytes - 1, two), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemcpyDtoHAsync_v2, back.data(), second, kBytes, two), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuEventRecord, end, two), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuEventSynchronize, end), CUDA_SUCCESS);
  out.back() = 0xff;  // From the memset. The copy must not change it.
  EXPECT_EQ(back, out);
  float milliseconds = -1;
  EXPECT_EQ(CALL(cuEventElapsedTime, &milliseconds, start, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(CALL(cuMemFree_v2, first), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemFree_v2, first), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(EmulatedDriver, RefusesInvalidCalls) {
  CUdeviceptr huge = 0;
  EXPECT_EQ(CALL(cuInit, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CALL(cuMemAlloc_v2, &huge, size_t{1} << 40), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CALL(cuStreamSynchronize, reinterpret_cast<CUstream>(0x1234)),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(CALL(cuCtxSetCurrent, reinterpret_cast<CUcontext>(0x1234)), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(EmulatedDriver, ServesCuGetProcAddress) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  EXPECT_EQ(CALL(cuGetProcAddress_v2, "cuMemAlloc", &found, 12000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(found, dlsym(library(), "cuMemAlloc_v2"));
  EXPECT_EQ(CALL(cuGetProcAddress_v2, "cuMemcpyAsync", &found, 12000, 2, &status), CUDA_SUCCESS);
  EXPECT_EQ(found, dlsym(library(), "cuMemcpyAsync_ptsz"));
  EXPECT_EQ(CALL(cuGetProcAddress, "cuNoSuchThing", &found, 12000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(found, nullptr);
}

TEST_F(EmulatedDriver, NamesErrorsAndIdentifiesItself) {
  const char* name = nullptr;
  EXPECT_EQ(CALL(cuGetErrorName, CUDA_ERROR_NOT_READY, &name), CUDA_SUCCESS);
  EXPECT_STREQ(name, "CUDA_ERROR_NOT_READY");
  CUuuid id;
  std::memcpy(id.bytes, gpurun::driver_abi::kEmulatedMarker.data(), sizeof id.bytes);
  const void* table = nullptr;
  ASSERT_EQ(CALL(cuGetExportTable, &table, &id), CUDA_SUCCESS);
  const auto* view = static_cast<const gpurun::driver_abi::EmulatedView*>(table);
  EXPECT_EQ(view->bytes, sizeof *view);
  EXPECT_EQ(view->library_capability(), 130);
  id.bytes[0] = 'x';
  EXPECT_EQ(CALL(cuGetExportTable, &table, &id), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table, nullptr);
}

TEST_F(EmulatedDriver, ImplementsAdditionsOfCuda131To135) {
  CUgraph graph = nullptr, containing = nullptr;
  CUgraphNode first = nullptr, second = nullptr;
  ASSERT_EQ(CALL(cuGraphCreate, &graph, 0), CUDA_SUCCESS);
  CUgraphNodeParams empty{};
  empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
  ASSERT_EQ(CALL(cuGraphAddNode_v3, &first, graph, nullptr, nullptr, 0, &empty), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuGraphAddNode_v3, &second, graph, &first, nullptr, 1, &empty), CUDA_SUCCESS);
  unsigned id = 0, first_id = 0, second_id = 0;
  EXPECT_EQ(CALL(cuGraphGetId, graph, &id), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuGraphNodeGetLocalId, first, &first_id), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuGraphNodeGetLocalId, second, &second_id), CUDA_SUCCESS);
  EXPECT_NE(first_id, second_id);
  EXPECT_EQ(CALL(cuGraphNodeGetContainingGraph, second, &containing), CUDA_SUCCESS);
  EXPECT_EQ(containing, graph);
  EXPECT_EQ(CALL(cuGraphDestroy, graph), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuGraphGetId, graph, &id), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CALL(cuGraphNodeGetLocalId, first, &first_id), CUDA_ERROR_INVALID_VALUE);

  CUdevResource resource{};
  EXPECT_EQ(CALL(cuStreamGetDevResource, nullptr, &resource, CU_DEV_RESOURCE_TYPE_SM),
            CUDA_SUCCESS);
  EXPECT_GT(resource.sm.smCount, 0u);

  CUdeviceptr memory = 0;
  ASSERT_EQ(CALL(cuMemAlloc_v2, &memory, 4), CUDA_SUCCESS);
  int seven = 7, back = 0;
  CUmemcpyAttributes during{};
  during.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  EXPECT_EQ(CALL(cuMemcpyWithAttributesAsync, memory, reinterpret_cast<CUdeviceptr>(&seven), 4,
                 &during, nullptr),
            CUDA_SUCCESS);
  seven = 8;
  EXPECT_EQ(CALL(cuMemcpyDtoH_v2, &back, memory, 4), CUDA_SUCCESS);
  EXPECT_EQ(back, 7);
  EXPECT_EQ(CALL(cuMemcpyWithAttributesAsync, memory, memory, 4, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CALL(cuMemFree_v2, memory), CUDA_SUCCESS);
}

// Tensor maps are encoded for hardware that is absent here.
TEST_F(EmulatedDriver, UnimplementedFunctionIsNamedInLog) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(CALL(cuTensorMapReplaceAddress, nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cuTensorMapReplaceAddress"),
            std::string::npos);
}

}  // namespace
