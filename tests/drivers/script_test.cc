// Script: each rule changes the null device as it says, and the changed device in the same way. A
// script that cannot be understood ends the process with the place of the fault. Without a script
// the device is unchanged.
#include "tests/drivers/script.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "driver_abi/cuda_abi.h"

namespace gpurun::devices {
namespace {

using testing::HasSubstr;

// A copy of a device's library in a folder of its own, with this script.
class ScriptedDevice {
 public:
  explicit ScriptedDevice(const std::optional<std::string>& script,
                          const char* device = NULL_DEVICE) {
    std::string name = std::filesystem::temp_directory_path() / "driver-script-XXXXXX";
    folder_ = mkdtemp(name.data());
    if (script.has_value()) std::ofstream(folder_ / "driver.script") << *script;
    const auto path = folder_ / "libcuda.so.1";
    std::filesystem::copy_file(device, path);
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  ~ScriptedDevice() { std::filesystem::remove_all(folder_); }
  ScriptedDevice(const ScriptedDevice&) = delete;
  ScriptedDevice& operator=(const ScriptedDevice&) = delete;

  template <typename Function>
  Function* get(const char* name, Function*) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  void* library_ = nullptr;
};

// Only the type comes from cuda.h. The test does not link CUDA.
#define CALL(device, name, ...) \
  (device).get(#name, static_cast<decltype(&::name)>(nullptr))(__VA_ARGS__)

int attribute(const ScriptedDevice& device, CUdevice_attribute id) {
  int value = -1;
  EXPECT_EQ(CALL(device, cuDeviceGetAttribute, &value, id, 0), CUDA_SUCCESS);
  return value;
}

TEST(DriverScript, DeviceWithoutScriptIsUnchanged) {
  const ScriptedDevice device(std::nullopt);
  int version = 0, count = 0;
  EXPECT_EQ(CALL(device, cuInit, 0u), CUDA_SUCCESS);
  EXPECT_EQ(CALL(device, cuInit, 1u), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CALL(device, cuDriverGetVersion, &version), CUDA_SUCCESS);
  EXPECT_EQ(version, 13000);
  EXPECT_EQ(CALL(device, cuDeviceGetCount, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1);
}

TEST(DriverScript, EmptyScriptChangesNothing) {
  const ScriptedDevice device("# Nothing.\n\n   \n");
  CUgraph graph = nullptr;
  EXPECT_EQ(CALL(device, cuInit, 1u), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CALL(device, cuGraphCreate, &graph, 0u), CUDA_SUCCESS);
  EXPECT_NE(graph, nullptr);
}

TEST(DriverScript, ReturnsGivesCodeWithoutWork) {
  const ScriptedDevice device("cuInit returns 803  # By hand.\ncuGraphCreate returns 2\n");
  EXPECT_EQ(CALL(device, cuInit, 0u), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  CUgraph graph = nullptr;  // Answered from its row alone.
  EXPECT_EQ(CALL(device, cuGraphCreate, &graph, 0u), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(graph, nullptr);
  CUevent event = nullptr;
  EXPECT_EQ(CALL(device, cuEventCreate, &event, 0u), CUDA_SUCCESS);
  EXPECT_NE(event, nullptr);
}

TEST(DriverScript, FirstMatchingReturnsDecides) {
  const ScriptedDevice device("cuInit returns 1 if Flags 7\ncuInit returns 2\ncuInit returns 3\n");
  EXPECT_EQ(CALL(device, cuInit, 7u), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CALL(device, cuInit, 0u), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(DriverScript, WritesChangesFirstOutputOfSuccessfulCall) {
  const ScriptedDevice device(
      "cuDriverGetVersion writes 12020\ncuDeviceGetCount writes 0x2\n"
      "cuStreamCreate writes 0xabcdef0123456789\n");
  int version = 0, count = 0;
  EXPECT_EQ(CALL(device, cuDriverGetVersion, &version), CUDA_SUCCESS);
  EXPECT_EQ(version, 12020);
  EXPECT_EQ(CALL(device, cuDriverGetVersion, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CALL(device, cuDeviceGetCount, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  CUstream stream = nullptr;
  EXPECT_EQ(CALL(device, cuStreamCreate, &stream, 0u), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(stream), 0xabcdef0123456789u);
}

TEST(DriverScript, ConditionLimitsRuleToParameterValue) {
  const ScriptedDevice device("cuDeviceGetAttribute writes 0 if attrib 102\n");
  EXPECT_EQ(attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 0);
  EXPECT_EQ(attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  const ScriptedDevice unchanged(std::nullopt);
  EXPECT_EQ(attribute(unchanged, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
}

TEST(DriverScript, TakesReplacesArgument) {
  const ScriptedDevice device(
      "cuStreamCreate takes Flags 1\ncuDeviceGet takes ordinal 5 if ordinal 0\n");
  CUstream stream = nullptr;
  unsigned flags = 7;
  EXPECT_EQ(CALL(device, cuStreamCreate, &stream, 0u), CUDA_SUCCESS);
  EXPECT_EQ(CALL(device, cuStreamGetFlags, stream, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, 1u);
  CUdevice ordinal = -1;
  EXPECT_EQ(CALL(device, cuDeviceGet, &ordinal, 0), CUDA_ERROR_INVALID_DEVICE);
}

TEST(DriverScript, CrashesKillsProcess) {
  const ScriptedDevice device("cuInit crashes if Flags 3\n");
  EXPECT_EQ(CALL(device, cuInit, 0u), CUDA_SUCCESS);
  EXPECT_DEATH(CALL(device, cuInit, 3u), "");
}

TEST(DriverScript, RecordKeepsArgumentsAndOutputs) {
  const ScriptedDevice device("record\ncuInit returns 803\ncuDeviceGetCount writes 2\n");
  const auto file = device.folder() / "recording";
  ASSERT_EQ(setenv("GPURUN_RECORDING_FILE", file.c_str(), 1), 0);
  int count = 0;
  EXPECT_EQ(CALL(device, cuInit, 0u), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  EXPECT_EQ(CALL(device, cuDeviceGetCount, &count), CUDA_SUCCESS);
  unsetenv("GPURUN_RECORDING_FILE");
  std::ifstream lines(file);
  const std::string text{std::istreambuf_iterator<char>(lines), {}};
  EXPECT_EQ(text, "cuInit(Flags=0x0) = 803\ncuDeviceGetCount(count=out) = 0 count=[02000000]\n");
}

TEST(DriverScript, FaultEndsProcessWithItsLine) {
  const ScriptedDevice of_function("\ncuInitialize returns 1\n");
  EXPECT_EXIT(CALL(of_function, cuInit, 0u), testing::ExitedWithCode(1),
              "/driver.script:2: cuInitialize is neither a function of the driver nor a rule");
  const ScriptedDevice of_rule("record\n# What it does.\ncuInit jumps\n");
  EXPECT_EXIT(
      CALL(of_rule, cuInit, 0u), testing::ExitedWithCode(1),
      "/driver.script:3: a function returns CODE, crashes, takes PARAMETER VALUE or writes");
}

std::string fault_of(const std::string& text, bool can_record = true) {
  const Result<Script> script = Script::parse(text, "file", can_record);
  return script.ok() ? "" : script.status().message();
}

TEST(DriverScript, EachFaultHasReason) {
  EXPECT_EQ(fault_of("record\ncuInit returns 1 if Flags 2 # Why.\n"), "");
  EXPECT_EQ(fault_of("cuInit"), "file:1: no rule for cuInit");
  EXPECT_EQ(fault_of("cuInit if Flags 1"), "file:1: no rule for cuInit");
  EXPECT_EQ(fault_of("record everything"),
            "file:1: record is neither a function of the driver nor a rule");
  EXPECT_EQ(fault_of("cuInit returns 1\nrecord", false), "file:2: this driver does not record");
  EXPECT_EQ(fault_of("cuInit returns many"), "file:1: many is not a number");
  EXPECT_EQ(fault_of("cuInit returns -1"), "file:1: -1 is not a number");
  EXPECT_EQ(fault_of("cuInit returns 0x"), "file:1: 0x is not a number");
  EXPECT_EQ(fault_of("cuInit returns 0x80000000"), "file:1: 0x80000000 is not a CUresult");
  EXPECT_EQ(fault_of("cuInit takes Flag 1"), "file:1: cuInit has no parameter Flag");
  EXPECT_EQ(fault_of("cuInit takes Flags 0x100000000"),
            "file:1: 0x100000000 does not fit into 4 bytes");
  EXPECT_EQ(fault_of("cuDeviceGetCount takes count 1"),
            "file:1: count of cuDeviceGetCount is not passed by value");
  EXPECT_EQ(fault_of("cuInit returns 1 if Flag 1"), "file:1: cuInit has no parameter Flag");
  EXPECT_EQ(fault_of("cuInit writes 1"), "file:1: the first output of cuInit is not a number");
  EXPECT_EQ(fault_of("cuDeviceGetName writes 1"),
            "file:1: the first output of cuDeviceGetName is not a number");
  EXPECT_EQ(fault_of("cuDeviceGetCount writes 0x100000000"),
            "file:1: 0x100000000 does not fit into 4 bytes");
  EXPECT_THAT(fault_of("cuInit returns"), HasSubstr("file:1: a function returns CODE"));
  EXPECT_THAT(fault_of("cuInit crashes now"), HasSubstr("file:1: a function returns CODE"));
}

// For a function that reads none of its arguments. Its type is another.
__attribute__((no_sanitize("undefined"))) int call_without_arguments(const ScriptedDevice& device,
                                                                     const char* name) {
  return device.get(name, static_cast<int (*)()>(nullptr))();
}

// Any row can have a rule, whether it is written by hand or answered from its row.
TEST(DriverScript, EveryRowCanReturnCode) {
  std::string text;
  for (const driver_abi::Row& row : driver_abi::rows()) {
    text += std::string(row.symbol) + " returns " + std::to_string(1000 + row.opcode) + "\n";
  }
  const ScriptedDevice device(text);
  for (const driver_abi::Row& row : driver_abi::rows()) {
    EXPECT_EQ(call_without_arguments(device, row.symbol), 1000 + row.opcode) << row.symbol;
  }
}

#ifdef CHANGED_DEVICE

TEST(ChangedDevice, FollowsItsScript) {
  const ScriptedDevice device(
      "cuMemAddressReserve takes addr 0x440000000000 if size 0x200000\n"
      "cuDeviceGetAttribute writes 0 if attrib 102\ncuMemCreate returns 801\n",
      CHANGED_DEVICE);
  ASSERT_EQ(CALL(device, cuInit, 0u), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(CALL(device, cuDevicePrimaryCtxRetain, &context, 0), CUDA_SUCCESS);
  ASSERT_EQ(CALL(device, cuCtxSetCurrent, context), CUDA_SUCCESS);
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  CUdeviceptr there = 0, other = 0;
  ASSERT_EQ(CALL(device, cuMemAddressReserve, &there, kBytes, 0u, CUdeviceptr{0}, 0u),
            CUDA_SUCCESS);
  EXPECT_EQ(there, 0x440000000000u);
  ASSERT_EQ(CALL(device, cuMemAddressReserve, &other, 2 * kBytes, 0u, CUdeviceptr{0}, 0u),
            CUDA_SUCCESS);
  EXPECT_NE(other >> 32, there >> 32);
  EXPECT_EQ(attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 0);
  EXPECT_EQ(attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  CUmemGenericAllocationHandle memory = 0;
  const CUmemAllocationProp prop{};
  EXPECT_EQ(CALL(device, cuMemCreate, &memory, kBytes, &prop, 0u), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(CALL(device, cuMemAddressFree, there, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(CALL(device, cuMemAddressFree, other, 2 * kBytes), CUDA_SUCCESS);
}

TEST(ChangedDevice, RefusesRequestedNumberOfCalls) {
  const ScriptedDevice device("", CHANGED_DEVICE);
  ASSERT_EQ(CALL(device, cuInit, 0u), CUDA_SUCCESS);
  device.get("gpurun_test_refuse", static_cast<void (*)(const char*, int, int)>(nullptr))(
      "cuDeviceGetCount", 2, 2);
  int count = 0;
  EXPECT_EQ(CALL(device, cuDeviceGetCount, &count), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CALL(device, cuDeviceGetCount, &count), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(CALL(device, cuDeviceGetCount, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1);
}

TEST(ChangedDevice, DoesNotRecord) {
  const ScriptedDevice device("record\n", CHANGED_DEVICE);
  EXPECT_EXIT(CALL(device, cuInit, 0u), testing::ExitedWithCode(1),
              "/driver.script:1: this driver does not record");
}

#endif  // CHANGED_DEVICE

}  // namespace
}  // namespace gpurun::devices
