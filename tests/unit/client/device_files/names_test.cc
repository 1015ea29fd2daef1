// Names: only the leased GPUs' names are found, spelled exactly, and a look-up below /dev or of an
// address of this machine attaches no process.
#include "client/device_files/names.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gpurun::client::device_files {
namespace {

unsigned leased = 0;
bool is_attached = false;
int questions = 0;  // That attach a process.

// Two GPUs at 0000:01:00.0 and 0001:af:10.0.
constexpr Lease kLease = {
    .device_count = [] { return leased; },
    .attached = [] { return is_attached; },
    .described_count =
        [] {
          ++questions;
          return leased;
        },
    .describe =
        [](unsigned index, driver_abi::NvmlDevice* device) {
          if (index >= leased) return false;
          std::strcpy(device->name, "Model X");
          device->uuid[15] = static_cast<std::uint8_t>(index);
          device->pci_domain = index;
          device->pci_bus = index == 0 ? 0x01 : 0xaf;
          device->pci_device = index == 0 ? 0 : 0x10;
          return true;
        },
    .driver_version = [] { return "580.65.06"; },
};

class Names : public testing::Test {
 protected:
  void SetUp() override {
    leased = 2;
    is_attached = false;
    questions = 0;
  }
  static Name name(std::string_view path) { return find_entry(path, kLease).name; }
};

TEST_F(Names, FindsDevicesOfTheLeaseAlone) {
  EXPECT_EQ(name("/dev/nvidia0"), Name::kGpu);
  EXPECT_EQ(find_entry("/dev/nvidia1", kLease).gpu, 1u);
  EXPECT_EQ(name("/dev/nvidiactl"), Name::kControl);
  EXPECT_EQ(name("/dev/nvidia-uvm"), Name::kManagedMemory);
  for (const char* other :
       {"/dev/nvidia2", "/dev/nvidia", "/dev/nvidia01", "/dev/nvidia-1", "/dev/nvidia0/",
        "/dev/nvidia1x", "/dev//nvidia0", "dev/nvidia0", "/dev/nvidia-uvm-tools",
        "/dev/nvidia99999999999", "/dev/null", "/dev", "", "/", "/dev/dxg"}) {
    EXPECT_EQ(name(other), Name::kNone) << other;
  }
  EXPECT_EQ(minor_number(find_entry("/dev/nvidia1", kLease)), 1u);
  EXPECT_EQ(minor_number(find_entry("/dev/nvidiactl", kLease)), 255u);
  EXPECT_EQ(questions, 0);
}

TEST_F(Names, FindsNothingWithoutLease) {
  leased = 0;
  is_attached = true;
  for (const char* path :
       {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/proc/driver/nvidia",
        "/proc/driver/nvidia/version", "/proc/driver/nvidia/gpus/0000:01:00.0/information",
        "/sys/bus/pci/devices/0000:01:00.0/numa_node"}) {
    EXPECT_EQ(name(path), Name::kNone) << path;
  }
  EXPECT_TRUE(items_of("/dev", kLease).empty());
  EXPECT_EQ(questions, 0);
}

TEST_F(Names, FindsDriversFilesByAddress) {
  EXPECT_EQ(name("/proc/driver/nvidia"), Name::kDriverFolder);
  EXPECT_EQ(name("/proc/driver/nvidia/"), Name::kDriverFolder);
  EXPECT_EQ(name("/proc/driver/nvidia/version"), Name::kVersion);
  EXPECT_EQ(name("/proc/driver/nvidia/gpus"), Name::kGpusFolder);
  EXPECT_EQ(questions, 0);
  EXPECT_EQ(find_entry("/proc/driver/nvidia/gpus/0001:af:10.0", kLease).gpu, 1u);
  EXPECT_EQ(name("/proc/driver/nvidia/gpus/0001:af:10.0/"), Name::kGpuFolder);
  EXPECT_EQ(name("/proc/driver/nvidia/gpus/0000:01:00.0/information"), Name::kInformation);
  for (const char* other :
       {"/proc/driver/nvidia/gpus/0000:02:00.0", "/proc/driver/nvidia/gpus/0000:01:00.0/registry",
        "/proc/driver/nvidia/gpus/0000:01:00", "/proc/driver/nvidia/params", "/proc/driver/nvidiax",
        "/proc/driver/nvidia/version/", "/proc/driver"}) {
    EXPECT_EQ(name(other), Name::kNone) << other;
  }
}

// Programs look through the addresses of this machine. Such a look must start no worker.
TEST_F(Names, AddressAttachesNothing) {
  EXPECT_EQ(name("/sys/bus/pci/devices/0000:01:00.0/numa_node"), Name::kNone);
  EXPECT_EQ(questions, 0);
  is_attached = true;
  EXPECT_EQ(name("/sys/bus/pci/devices/0000:01:00.0/numa_node"), Name::kNumaNode);
  EXPECT_EQ(name("/sys/bus/pci/devices/0000:01:00.0/vendor"), Name::kNone);
  EXPECT_EQ(name("/sys/bus/pci/devices/0000:02:00.0/numa_node"), Name::kNone);
}

TEST_F(Names, WritesFilesAsNvidiasDriver) {
  const std::string version = content_of({Name::kVersion}, kLease);
  EXPECT_NE(version.find("Kernel Module  580.65.06  "), std::string::npos) << version;
  const std::string information = content_of({Name::kInformation, 1}, kLease);
  EXPECT_NE(information.find("Model: \t\t Model X\n"), std::string::npos) << information;
  EXPECT_NE(information.find("GPU UUID: \t GPU-00000000-0000-0000-0000-000000000001\n"),
            std::string::npos)
      << information;
  EXPECT_NE(information.find("Bus Location: \t 0001:af:10.0\n"), std::string::npos) << information;
  EXPECT_NE(information.find("Device Minor: \t 1\n"), std::string::npos) << information;
  EXPECT_EQ(content_of({Name::kNumaNode}, kLease), "-1\n");
  EXPECT_EQ(content_of({Name::kInformation, 2}, kLease), "");
}

TEST_F(Names, ListsFolders) {
  const auto names_in = [](std::string_view folder) {
    std::string all;
    for (const Item& item : items_of(folder, kLease)) all += item.name + " ";
    return all;
  };
  EXPECT_EQ(names_in("/dev"), "nvidia0 nvidia1 nvidia-uvm nvidiactl ");
  EXPECT_EQ(names_in("/dev/"), names_in("/dev"));
  EXPECT_EQ(names_in("/proc/driver/nvidia"), "gpus version ");
  EXPECT_EQ(names_in("/proc/driver/nvidia/gpus"), "0000:01:00.0 0001:af:10.0 ");
  EXPECT_EQ(names_in("/proc/driver/nvidia/gpus/0000:01:00.0"), "information ");
  EXPECT_EQ(names_in("/proc/driver"), "");
}

}  // namespace
}  // namespace gpurun::client::device_files
