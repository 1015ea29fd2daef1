// NVML of the emulated device, opened as NCCL and PyTorch open it: it agrees with CUDA about the
// devices' identity, and reports the memory that processes use.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "driver_abi/cuda_abi.h"

namespace {

class EmulatedNvml : public testing::Test {
 protected:
  void SetUp() override {
    // The libraries read the variable once.
    static const int ledger = memfd_create("ledger", 0);
    ledger_ = ledger;
    const std::string text =
        "devices=2,memory=256MiB,capability=9.0,ledger=" + std::to_string(ledger_);
    setenv("GPURUN_EMULATED", text.c_str(), 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    nvml_ = dlopen(EMULATED_NVML, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(nvml_, nullptr) << dlerror();
    ASSERT_EQ(call("nvmlInit_v2"), 0);
  }
  void TearDown() override { EXPECT_EQ(call("nvmlShutdown"), 0); }

  template <typename... Arguments>
  int call_in(void* library, const char* name, Arguments... arguments) {
    auto* function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
    if (function == nullptr) {
      ADD_FAILURE() << name << " is not exported";
      return -1;
    }
    return function(arguments...);
  }
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) {
    return call_in(nvml_, name, arguments...);
  }

  struct Memory {
    unsigned long long total, free, used;
  };

  // The used memory that NVML reports for the visible device.
  unsigned long long used() {
    void* device = nullptr;
    Memory memory{};
    EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 1u, &device), 0);
    EXPECT_EQ(call("nvmlDeviceGetMemoryInfo", device, &memory), 0);
    return memory.used;
  }

  void* nvml_ = nullptr;
  int ledger_ = -1;
};

TEST_F(EmulatedNvml, ShowsEveryDeviceWithItsCapability) {
  unsigned count = 0;
  ASSERT_EQ(call("nvmlDeviceGetCount_v2", &count), 0);
  EXPECT_EQ(count, 2u);  // Not only the visible one.
  void* device = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 1u, &device), 0);
  int major = 0, minor = -1;
  ASSERT_EQ(call("nvmlDeviceGetCudaComputeCapability", device, &major, &minor), 0);
  EXPECT_EQ(major, 9);
  EXPECT_EQ(minor, 0);
  EXPECT_NE(call("nvmlDeviceGetHandleByIndex_v2", 2u, &device), 0);
}

// This process uses no CUDA yet, because this test comes before the one that does.
TEST_F(EmulatedNvml, CountsMemoryOfOtherProcessUntilItDies) {
  constexpr off_t kBytes = off_t{32} << 20;
  const unsigned long long before = used();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    struct flock taken {};  // As memory_ledger.h says.
    taken.l_type = F_WRLCK;
    taken.l_start = kBytes;
    taken.l_len = kBytes;
    const char done = fcntl(ledger_, F_SETLK, &taken) == 0 ? 'y' : 'n';
    if (write(ends[1], &done, 1) == 1) pause();
    _exit(1);
  }
  char done = 0;
  EXPECT_EQ(read(ends[0], &done, 1), 1);
  EXPECT_EQ(done, 'y');
  EXPECT_EQ(used() - before, 32ull << 20);
  kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(used(), before);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(EmulatedNvml, AgreesWithCudaAboutIdentityAndMemory) {
  void* cuda = dlopen(EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(cuda, nullptr) << dlerror();
  ASSERT_EQ(call_in(cuda, "cuInit", 0u), 0);
  int count = 0;
  ASSERT_EQ(call_in(cuda, "cuDeviceGetCount", &count), 0);
  ASSERT_EQ(count, 1);
  CUuuid uuid;
  ASSERT_EQ(call_in(cuda, "cuDeviceGetUuid", &uuid, 0), 0);
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char byte[4];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte;
  }
  void* by_uuid = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByUUID", text.c_str(), &by_uuid), 0) << text;
  char bus[32] = "";
  ASSERT_EQ(call_in(cuda, "cuDeviceGetPCIBusId", bus, 32, 0), 0);
  void* by_bus = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(bus), &by_bus), 0);
  EXPECT_EQ(by_uuid, by_bus);

  Memory before{}, after{};
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", by_uuid, &before), 0);
  EXPECT_EQ(before.total, 256ull << 20);
  void* context = nullptr;
  unsigned long long address = 0;
  ASSERT_EQ(call_in(cuda, "cuCtxCreate_v2", &context, 0u, 0), 0);
  ASSERT_EQ(call_in(cuda, "cuMemAlloc_v2", &address, std::size_t{64} << 20), 0);
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", by_uuid, &after), 0);
  EXPECT_EQ(after.used - before.used, 64ull << 20);
  EXPECT_EQ(call_in(cuda, "cuCtxDestroy_v2", context), 0);
}

}  // namespace
