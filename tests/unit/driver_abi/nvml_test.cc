// libnvidia-ml.so.1 as NCCL, PyTorch and XLA use it: opened at run time, with functions found by
// name. Structures have NVIDIA's layout, given here as bytes and offsets and not by our header.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace {

class NvmlTest : public testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(GPURUN_TEST_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    ASSERT_EQ(call("nvmlInit_v2"), 0);
    ASSERT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 0U, &device_), 0);
  }
  void TearDown() override { EXPECT_EQ(call("nvmlShutdown"), 0); }

  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) {
    auto* function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    if (function == nullptr) {
      ADD_FAILURE() << name << " is not exported";
      return -1;
    }
    return function(arguments...);
  }

  void* library_ = nullptr;
  void* device_ = nullptr;
};

// PyTorch asserts that its names exist, and NCCL falls back for each missing one. The table is
// therefore a promise.
TEST_F(NvmlTest, ExportsTableAndRefusesUnsupportedFunctions) {
  std::ifstream table(GPURUN_SOURCE_DIR "/driver_abi/nvml.toml");
  const std::string text(std::istreambuf_iterator<char>(table), {});
  const std::size_t refused_at = text.find("\nrefused = [");
  ASSERT_NE(refused_at, std::string::npos);
  const std::regex name("\"(nvml\\w+)\"");
  unsigned count = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it, ++count) {
    const std::string symbol = (*it)[1];
    EXPECT_NE(dlsym(library_, symbol.c_str()), nullptr) << symbol;
    if (static_cast<std::size_t>(it->position()) > refused_at) {
      EXPECT_EQ(call(symbol.c_str()), 3) << symbol;
    }
  }
  EXPECT_GT(count, 100U);
  EXPECT_EQ(dlsym(library_, "_ZN6gpurun10driver_abi11nvml_sourceEv"), nullptr) << "ours is hidden";
}

TEST_F(NvmlTest, DevicesAreFoundByIndexBusIdAndUuid) {
  unsigned count = 0;
  ASSERT_EQ(call("nvmlDeviceGetCount_v2", &count), 0);
  EXPECT_EQ(count, 2U);
  void* second = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByPciBusId_v2", "00000010:1B:00.0", &second), 0);
  EXPECT_NE(second, device_);
  void* same = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByPciBusId", "0010:1b:00.0", &same), 0);
  EXPECT_EQ(same, second);
  char uuid[96];
  ASSERT_EQ(call("nvmlDeviceGetUUID", second, uuid, 96U), 0);
  EXPECT_STREQ(uuid, "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01");
  ASSERT_EQ(call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(uuid), &same), 0);
  EXPECT_EQ(same, second);
  same = nullptr;  // As cuDeviceGetUuid gives it.
  ASSERT_EQ(call("nvmlDeviceGetHandleByUUID", "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01", &same), 0);
  EXPECT_EQ(same, second);
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", "-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01", &same), 6);
  unsigned index = 9;
  ASSERT_EQ(call("nvmlDeviceGetIndex", second, &index), 0);
  EXPECT_EQ(index, 1U);

  EXPECT_EQ(call("nvmlDeviceGetHandleByPciBusId_v2", "00000000:77:00.0", &same), 6);
  EXPECT_EQ(call("nvmlDeviceGetHandleByPciBusId_v2", "nonsense", &same), 2);
  EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 2U, &same), 2);
  EXPECT_EQ(call("nvmlDeviceGetIndex", static_cast<void*>(&index), &index), 2) << "no handle";
  EXPECT_EQ(call("nvmlDeviceGetIndex", static_cast<void*>(nullptr), &index), 2);
}

TEST_F(NvmlTest, TextQueriesRequireSufficientBuffer) {
  char name[6];
  EXPECT_EQ(call("nvmlDeviceGetName", device_, name, 5U), 7);
  EXPECT_EQ(call("nvmlDeviceGetName", device_, name, 6U), 0);
  EXPECT_STREQ(name, "First");
  char version[80];
  EXPECT_EQ(call("nvmlSystemGetDriverVersion", version, 80U), 0);
  EXPECT_STREQ(version, "580.65.06");
  EXPECT_EQ(call("nvmlSystemGetNVMLVersion", version, 80U), 0);
  EXPECT_STREQ(version, "13.580.65.06");
  int cuda = 0;
  EXPECT_EQ(call("nvmlSystemGetCudaDriverVersion_v2", &cuda), 0);
  EXPECT_EQ(cuda, 13000);
}

// Offsets of NVML's structures. The byte after each structure must not change.
TEST_F(NvmlTest, StructuresHaveNvmlLayout) {
  std::vector<unsigned char> bytes(128, 0xee);
  const auto u32 = [&bytes](std::size_t at) {
    std::uint32_t value;
    std::memcpy(&value, &bytes[at], 4);
    return value;
  };
  const auto u64 = [&bytes](std::size_t at) {
    std::uint64_t value;
    std::memcpy(&value, &bytes[at], 8);
    return value;
  };
  ASSERT_EQ(call("nvmlDeviceGetPciInfo_v3", device_, static_cast<void*>(bytes.data())), 0);
  EXPECT_STREQ(reinterpret_cast<char*>(bytes.data()), "0010:1A:00.0");
  EXPECT_EQ(u32(16), 0x10U);
  EXPECT_EQ(u32(20), 0x1aU);
  EXPECT_STREQ(reinterpret_cast<char*>(&bytes[36]), "00000010:1A:00.0");
  EXPECT_EQ(bytes[68], 0xee);

  bytes.assign(128, 0xee);
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", device_, static_cast<void*>(bytes.data())), 0);
  EXPECT_EQ(u64(0), std::uint64_t{8} << 30);
  EXPECT_EQ(u64(8) + u64(16), u64(0));
  EXPECT_EQ(u64(16), std::uint64_t{1} << 30);
  EXPECT_EQ(bytes[24], 0xee);

  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo_v2", device_, static_cast<void*>(bytes.data())), 25);
  const std::uint32_t version = 0x02000028;
  std::memcpy(bytes.data(), &version, 4);
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo_v2", device_, static_cast<void*>(bytes.data())), 0);
  EXPECT_EQ(u64(8), std::uint64_t{8} << 30);
  EXPECT_EQ(u64(32), std::uint64_t{1} << 30);
  EXPECT_EQ(bytes[40], 0xee);
}

TEST_F(NvmlTest, ProcessListReturnsRequiredSize) {
  unsigned count = 0;
  EXPECT_EQ(
      call("nvmlDeviceGetComputeRunningProcesses_v3", device_, &count, static_cast<void*>(nullptr)),
      7);
  ASSERT_EQ(count, 2U);
  std::vector<std::uint64_t> infos(7, 0xee);
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", device_, &count,
                 static_cast<void*>(infos.data())),
            0);
  EXPECT_EQ(infos[0] & 0xffffffff, 1234U);
  EXPECT_EQ(infos[1], 77U);
  EXPECT_EQ(infos[2], ~std::uint64_t{0});
  EXPECT_EQ(infos[4], 78U);
  EXPECT_EQ(infos[6], 0xeeU);
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses", device_, &count,
                 static_cast<void*>(infos.data())),
            0);
  EXPECT_EQ(infos[3], 78U) << "the first version has elements of 16 bytes";
}

TEST_F(NvmlTest, UnknownFactsReturnNotSupported) {
  unsigned value = 0;
  EXPECT_EQ(call("nvmlDeviceGetTemperature", device_, 0, &value), 0);
  EXPECT_EQ(value, 45U);
  EXPECT_EQ(call("nvmlDeviceGetPowerUsage", device_, &value), 3);
  EXPECT_EQ(call("nvmlDeviceGetMaxPcieLinkGeneration", device_, &value), 0);
  EXPECT_EQ(value, 4U);
  void* second = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByIndex", 1U, &second), 0);
  EXPECT_EQ(call("nvmlDeviceGetMaxPcieLinkGeneration", second, &value), 3);
  int status = -1;
  EXPECT_EQ(call("nvmlDeviceGetP2PStatus", device_, device_, 0, &status), 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(call("nvmlDeviceGetP2PStatus", device_, second, 0, &status), 0);
  EXPECT_EQ(status, 5);
  int level = -1;
  EXPECT_EQ(call("nvmlDeviceGetTopologyCommonAncestor", device_, second, &level), 0);
  EXPECT_EQ(level, 20);
  EXPECT_EQ(call("nvmlDeviceGetTopologyCommonAncestor", device_, device_, &level), 0);
  EXPECT_EQ(level, 0);
  EXPECT_EQ(call("nvmlDeviceGetTopologyCommonAncestor", device_, second, nullptr), 2);
  int major = 0;
  int minor = 0;
  EXPECT_EQ(call("nvmlDeviceGetCudaComputeCapability", device_, &major, &minor), 0);
  EXPECT_EQ(major * 10 + minor, 121);
}

TEST_F(NvmlTest, CallsRequireInit) {
  unsigned count = 0;
  ASSERT_EQ(call("nvmlInit"), 0);
  ASSERT_EQ(call("nvmlShutdown"), 0);
  EXPECT_EQ(call("nvmlDeviceGetCount", &count), 0) << "counted, not switched";
  ASSERT_EQ(call("nvmlShutdown"), 0);
  EXPECT_EQ(call("nvmlShutdown"), 1);
  EXPECT_EQ(call("nvmlDeviceGetCount", &count), 1);
  EXPECT_EQ(call("nvmlDeviceGetNvLinkState"), 1);
  ASSERT_EQ(call("nvmlInit"), 0);
}

}  // namespace
