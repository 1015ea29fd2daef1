// Test devices: the null device, also while it records, keeps the promises that benches and tests
// of the call path rely on. Covers every symbol, distinct handles, working memory, kernels with
// their PTX layout, and a recording that tells arguments apart. The test opens the libraries as a
// worker opens a driver.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace {

class Device {
 public:
  explicit Device(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {}
  bool open() const { return library_ != nullptr; }
  void* symbol(const char* name) const { return dlsym(library_, name); }
  template <typename Function>
  Function* get(const char* name, Function*) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* library_;
};

// Only the type comes from cuda.h. The test does not link CUDA.
#define CALL(device, name, ...) \
  (device).get(#name, static_cast<decltype(&::name)>(nullptr))(__VA_ARGS__)

const Device& null_device() {
  static const Device device(NULL_DEVICE);
  return device;
}

constexpr char kPtx[] = R"(.version 8.0
.target sm_50
.address_size 64
.visible .entry add(
  .param .u64 .ptr .global .align 4 add_a,
  .param .u32 add_n,
  .param .align 8 .b8 add_s[24]
) { ret; }
.entry nothing() { ret; }
)";

TEST(NullDevice, ExportsEveryRow) {
  ASSERT_TRUE(null_device().open()) << dlerror();
  for (const auto& row : gpurun::driver_abi::rows()) {
    EXPECT_NE(null_device().symbol(row.symbol), nullptr) << row.symbol;
  }
}

TEST(NullDevice, HandlesAreDistinct) {
  CUstream a = nullptr, b = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(CALL(null_device(), cuStreamCreate, &a, 0u), CUDA_SUCCESS);
  ASSERT_EQ(CALL(null_device(), cuStreamCreate, &b, 1u), CUDA_SUCCESS);
  ASSERT_EQ(CALL(null_device(), cuEventCreate, &event, 0u), CUDA_SUCCESS);
  EXPECT_NE(a, b);
  EXPECT_NE(static_cast<void*>(a), static_cast<void*>(event));
  unsigned flags = 7;
  ASSERT_EQ(CALL(null_device(), cuStreamGetFlags, b, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, 1u);
}

TEST(NullDevice, CopiesToPlainAndMappedMemory) {
  CUdeviceptr plain = 0, window = 0;
  ASSERT_EQ(CALL(null_device(), cuMemAlloc_v2, &plain, 4096u), CUDA_SUCCESS);
  const std::vector<int> sent{1, 2, 3, 4};
  ASSERT_EQ(CALL(null_device(), cuMemcpyHtoD_v2, plain, sent.data(), 16u), CUDA_SUCCESS);

  constexpr std::size_t kBytes = std::size_t{2} << 20;
  CUmemGenericAllocationHandle memory = 0;
  const CUmemAllocationProp prop{};
  ASSERT_EQ(CALL(null_device(), cuMemAddressReserve, &window, kBytes, 0u, CUdeviceptr{0}, 0u),
            CUDA_SUCCESS);
  ASSERT_EQ(CALL(null_device(), cuMemCreate, &memory, kBytes, &prop, 0u), CUDA_SUCCESS);
  ASSERT_EQ(CALL(null_device(), cuMemMap, window, kBytes, 0u, memory, 0u), CUDA_SUCCESS);
  ASSERT_EQ(CALL(null_device(), cuMemcpyDtoD_v2, window, plain, 16u), CUDA_SUCCESS);
  std::vector<int> back(4);
  ASSERT_EQ(CALL(null_device(), cuMemcpyDtoH_v2, back.data(), window, 16u), CUDA_SUCCESS);
  EXPECT_EQ(back, sent);
  EXPECT_EQ(CALL(null_device(), cuMemUnmap, window, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(CALL(null_device(), cuMemRelease, memory), CUDA_SUCCESS);
  EXPECT_EQ(CALL(null_device(), cuMemRelease, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CALL(null_device(), cuMemFree_v2, plain), CUDA_SUCCESS);
  EXPECT_EQ(CALL(null_device(), cuMemFree_v2, plain), CUDA_ERROR_INVALID_VALUE);
}

TEST(NullDevice, PtxKernelsReportParameterLayout) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(CALL(null_device(), cuModuleLoadData, &module, kPtx), CUDA_SUCCESS);
  ASSERT_EQ(CALL(null_device(), cuModuleGetFunction, &function, module, "add"), CUDA_SUCCESS);
  unsigned count = 0;
  ASSERT_EQ(CALL(null_device(), cuModuleGetFunctionCount, &count, module), CUDA_SUCCESS);
  EXPECT_EQ(count, 2u);
  const std::size_t expected[][2] = {{0, 8}, {8, 4}, {16, 24}};
  std::size_t offset = 0, bytes = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(CALL(null_device(), cuFuncGetParamInfo, function, i, &offset, &bytes), CUDA_SUCCESS);
    EXPECT_EQ(offset, expected[i][0]) << i;
    EXPECT_EQ(bytes, expected[i][1]) << i;
  }
  EXPECT_EQ(CALL(null_device(), cuFuncGetParamInfo, function, 3u, &offset, &bytes),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(RecordingDevice, RecordsArgumentsDistinctly) {
  const auto file =
      std::filesystem::temp_directory_path() / ("recording-test-" + std::to_string(getpid()));
  ASSERT_EQ(setenv("GPURUN_RECORDING_FILE", file.c_str(), 1), 0);
  const Device device(RECORDING_DEVICE);
  ASSERT_TRUE(device.open()) << dlerror();
  CUgraph graph = nullptr;
  ASSERT_EQ(CALL(device, cuGraphCreate, &graph, 5u), CUDA_SUCCESS);
  const CUgraphNode from[] = {reinterpret_cast<CUgraphNode>(0x11)};
  const CUgraphNode to[] = {reinterpret_cast<CUgraphNode>(0x22)};
  ASSERT_EQ(CALL(device, cuGraphAddDependencies, graph, from, to, 1u), CUDA_SUCCESS);
  std::ifstream lines(file);
  std::string first, second;
  ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second));
  EXPECT_EQ(first.rfind("cuGraphCreate(phGraph=out, flags=0x5) = 0 phGraph={0x", 0), 0u) << first;
  EXPECT_NE(second.find("from={0x11}, to={0x22}, numDependencies=0x1) = 0"), std::string::npos)
      << second;
  std::filesystem::remove(file);
}

}  // namespace
