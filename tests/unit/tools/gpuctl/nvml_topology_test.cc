// NVML topology: a program's nvmlDeviceGetTopologyCommonAncestor has the distances that `gpuctl
// topo` prints on the server, whatever the order of CUDA's devices is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/devices/device_snapshot.h"
#include "server/driver/snapshot.h"
#include "tests/unit/tools/gpuctl/invented_machine.h"
#include "tools/gpuctl/topo/topo.h"

namespace gpurun::tools {
namespace {

// nvmlGpuTopologyLevel_t of the words of `nvidia-smi topo -m` (NVML API Reference).
const std::map<std::string, int> kLevels = {{"X", 0},    {"PIX", 10},  {"PXB", 20},
                                            {"PHB", 30}, {"NODE", 40}, {"SYS", 50}};

// The words of gpuctl topo, by two PCI addresses.
std::map<std::string, std::map<std::string, std::string>> words(const SystemFiles& files) {
  const auto parsed = nlohmann::json::parse(topo_json(topo_devices(files)));
  std::map<std::string, std::map<std::string, std::string>> words;
  for (const auto& row : parsed["devices"]) {
    for (const auto& column : parsed["devices"]) {
      words[row["address"].get<std::string>()][column["address"].get<std::string>()] =
          row["distances"][column["device"].get<std::string>()].get<std::string>();
    }
  }
  return words;
}

std::string address_of(const client::Device& device) {
  std::string address = device.pci_bus_id;
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char each) { return static_cast<char>(std::tolower(each)); });
  return address;
}

class NvmlTopology : public ::testing::Test {
 protected:
  NvmlTopology() {
    // Two GPUs of one switch, one behind a second switch, one at the same host bridge, one at
    // another host bridge, and one of another processor. The driver's sixth GPU is hidden.
    const std::string first = "pci0000:3a/0000:3a:00.0/0000:3b:00.0";
    machine_.gpu(first + "/0000:3c:00.0/0000:3d:00.0");
    machine_.gpu(first + "/0000:3c:04.0/0000:3e:00.0");
    machine_.gpu(first + "/0000:3c:08.0/0000:40:00.0/0000:41:00.0/0000:42:00.0");
    machine_.gpu("pci0000:5d/0000:5d:00.0/0000:5e:00.0");
    machine_.gpu("pci0000:ae/0000:ae:00.0/0000:af:00.0", 1);
  }
  client::DeviceSnapshot snapshot(const char* visible) {
    auto driver = server::CudaDriver::open(GPUS_DRIVER);
    EXPECT_TRUE(driver.ok()) << driver.status().to_string();
    EXPECT_TRUE((*driver)->initialize().ok());
    const auto message = server::take_snapshot(**driver, machine_.files());
    EXPECT_TRUE(message.ok()) << message.status().to_string();
    auto parsed = client::DeviceSnapshot::parse(*message, visible);
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
    return *std::move(parsed);
  }

  InventedMachine machine_;
};

TEST_F(NvmlTopology, AnswersAreThoseOfGpuctlTopo) {
  const auto expected = words(machine_.files());
  for (const char* visible : {static_cast<const char*>(nullptr), "4,0,3"}) {
    const client::DeviceSnapshot devices = snapshot(visible);
    ASSERT_EQ(devices.device_count(), visible == nullptr ? 6 : 3);
    std::map<int, int> seen;
    for (int from = 0; from < devices.device_count(); ++from) {
      for (int to = 0; to < devices.device_count(); ++to) {
        const std::string near = address_of(*devices.device(from));
        const std::string far = address_of(*devices.device(to));
        const auto level = devices.topology_level(from, to);
        if (from != to && (near == "0000:99:00.0" || far == "0000:99:00.0")) {
          EXPECT_FALSE(level.has_value()) << "the kernel does not show that GPU";
          continue;
        }
        if (from == to) continue;
        ASSERT_TRUE(level.has_value()) << near << " " << far;
        EXPECT_EQ(*level, kLevels.at(expected.at(near).at(far))) << near << " " << far;
        ++seen[*level];
      }
    }
    // The machine has GPUs of these distances.
    for (const int level : visible == nullptr ? std::vector{10, 20, 40, 50} : std::vector{20, 50}) {
      EXPECT_GT(seen[level], 0) << level;
    }
  }
}

}  // namespace
}  // namespace gpurun::tools
