// gpuctl topo and info: distances and devices of invented machines.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/tools/gpuctl/invented_machine.h"
#include "tools/gpuctl/info/info.h"
#include "tools/gpuctl/topo/topo.h"

namespace gpurun::tools {
namespace {

// Two processors. The first has a switch with two GPUs and a NIC, a GPU behind a second switch, and
// a GPU at a root port of another host bridge. The second has a GPU.
class TwoProcessors : public ::testing::Test {
 protected:
  TwoProcessors() {
    const std::string root = "pci0000:3a/0000:3a:00.0";
    const std::string first = root + "/0000:3b:00.0";
    machine_.gpu(first + "/0000:3c:00.0/0000:3d:00.0");
    machine_.gpu(first + "/0000:3c:04.0/0000:3e:00.0");
    machine_.gpu(first + "/0000:3c:08.0/0000:40:00.0/0000:41:00.0/0000:42:00.0");
    machine_.gpu("pci0000:5d/0000:5d:00.0/0000:5e:00.0");
    machine_.gpu("pci0000:ae/0000:ae:00.0/0000:af:00.0", 1);
    const std::string nic =
        machine_.pci(first + "/0000:3c:0c.0/0000:3f:00.0", "0x15b3", "0x1017", "0x020000");
    machine_.pci(first + "/0000:3c:0c.0/0000:3f:00.1", "0x15b3", "0x1017", "0x020000");
    machine_.verbs("mlx5_0", nic, "4: ACTIVE");
    machine_.link("/sys/class/net/ens3np0/device", nic);
    const std::string ethernet =
        machine_.pci("pci0000:3a/0000:3a:1f.0", "0x8086", "0x1", "0x020000");
    machine_.link("/sys/class/net/eth1/device", ethernet);
    machine_.write("/sys/class/net/eth1/mtu", "1500\n");
    machine_.write("/sys/class/net/eth1/speed", "25000\n");
    machine_.write("/sys/class/net/lo/mtu", "65536\n");
    machine_.write("/sys/class/net/lo/speed", "-1\n");
    machine_.write("/sys/class/net/bonding_masters", "\n");
  }

  InventedMachine machine_;
};

TEST_F(TwoProcessors, DistancesAreThoseOfTheBridges) {
  const auto parsed = nlohmann::json::parse(topo_json(topo_devices(machine_.files())));
  ASSERT_EQ(parsed["devices"].size(), 7U);
  const auto& first = parsed["devices"][0]["distances"];
  EXPECT_EQ(first["GPU0"], "X");
  EXPECT_EQ(first["GPU1"], "PIX");
  EXPECT_EQ(first["GPU2"], "PXB");
  EXPECT_EQ(first["GPU3"], "NODE");
  EXPECT_EQ(first["GPU4"], "SYS");
  EXPECT_EQ(first["NIC0"], "PIX");
  EXPECT_EQ(first["NIC1"], "PHB");
  for (const auto& row : parsed["devices"]) {  // The same both ways.
    for (const auto& column : parsed["devices"]) {
      EXPECT_EQ(row["distances"][column["device"].get<std::string>()],
                column["distances"][row["device"].get<std::string>()]);
    }
  }
  EXPECT_EQ(parsed["devices"][4]["numa_node"], 1);
  EXPECT_EQ(parsed["devices"][5]["name"], "mlx5_0");
  EXPECT_EQ(parsed["devices"][6]["name"], "eth1");
}

// The nearest RDMA device is that of a session, as port_order.h chooses it.
TEST_F(TwoProcessors, NearestRdmaDeviceOfEachGpuIsNamed) {
  const std::string far =
      machine_.pci("pci0000:ae/0000:ae:01.0/0000:b0:00.0", "0x15b3", "0x1017", "0x020000", 1);
  machine_.verbs("mlx5_1", far, "4: ACTIVE");
  const auto devices = topo_devices(machine_.files());
  const auto parsed = nlohmann::json::parse(topo_json(devices));
  EXPECT_EQ(parsed["devices"][0]["preferred_rdma_device"], "NIC0");
  EXPECT_EQ(parsed["devices"][4]["preferred_rdma_device"], "NIC1");
  EXPECT_TRUE(parsed["devices"][5]["preferred_rdma_device"].is_null());
  const std::string text = topo_text(devices);
  EXPECT_NE(text.find("\n  GPU0: NIC0, mlx5_0 (PIX)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  GPU4: NIC1, mlx5_1 (PHB)\n"), std::string::npos) << text;
}

TEST_F(TwoProcessors, TableHasAffinityAndLegend) {
  const std::string text = topo_text(topo_devices(machine_.files()));
  EXPECT_NE(
      text.find("        GPU0    GPU1    GPU2    GPU3    GPU4    NIC0    NIC1    CPU Affinity  "
                "NUMA Affinity\n"),
      std::string::npos)
      << text;
  EXPECT_NE(
      text.find("GPU4    SYS     SYS     SYS     SYS     X       SYS     SYS     16-31         "
                "1\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("Legend:"), std::string::npos);
  EXPECT_NE(text.find("  NIC0: 0000:3f:00.0, mlx5_0\n"), std::string::npos);
}

// NVML API Reference, nvmlGpuTopologyLevel_t.
TEST(Topo, DistancesHaveTheLevelsOfNvml) {
  const std::pair<Distance, int> kLevels[] = {
      {Distance::kSame, 0},        {Distance::kSwitch, 10}, {Distance::kSwitches, 20},
      {Distance::kHostBridge, 30}, {Distance::kNode, 40},   {Distance::kSystem, 50}};
  for (const auto& [distance, level] : kLevels) EXPECT_EQ(nvml_level(distance), level);
}

TEST(Topo, UnknownNodesAreFarFromEachOther) {
  InventedMachine machine;
  machine.gpu("pci0000:00/0000:00:05.0", -1);
  machine.gpu("pci0001:00/0001:00:05.0", -1);
  const auto parsed = nlohmann::json::parse(topo_json(topo_devices(machine.files())));
  EXPECT_EQ(parsed["devices"][0]["distances"]["GPU1"], "SYS");
  EXPECT_TRUE(parsed["devices"][0]["numa_node"].is_null());
}

TEST(Topo, FunctionsOfOneCardAreTwoDevices) {
  InventedMachine machine;
  machine.gpu("pci0000:00/0000:00:05.0");
  machine.gpu("pci0000:00/0000:00:05.1");
  const auto parsed = nlohmann::json::parse(topo_json(topo_devices(machine.files())));
  EXPECT_EQ(parsed["devices"][0]["distances"]["GPU1"], "PIX");
  EXPECT_EQ(parsed["devices"][0]["distances"]["GPU0"], "X");
}

TEST(Topo, MachineWithoutDevices) {
  const InventedMachine machine;
  EXPECT_NE(topo_text(topo_devices(machine.files())).find("no NVIDIA GPU"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(topo_json({}))["devices"].empty());
}

// As a virtual machine shows a network device: a child of its PCI device.
TEST(Pci, NetworkDeviceOfVirtioHasItsPciDevice) {
  InventedMachine machine;
  const std::string parent = machine.pci("pci0000:00/0000:00:03.0", "0x1af4", "0x1041", "0x020000");
  machine.write("/sys/class/net/eth0/mtu", "1500\n");
  machine.link("/sys/class/net/eth0/device", parent + "/virtio1");
  const auto device = pci_device_at(machine.files(), "/sys/class/net/eth0/device");
  ASSERT_TRUE(device.has_value());
  EXPECT_EQ(device->address, "0000:00:03.0");
  EXPECT_EQ(device->vendor, 0x1af4U);
  EXPECT_FALSE(pci_device_at(machine.files(), "/sys/class/net/eth1/device").has_value());
}

TEST(SystemFiles, NumbersAndBounds) {
  InventedMachine machine;
  machine.write("/sys/a", "0x10de\n");
  machine.write("/sys/b", "-1\n");
  machine.write("/sys/c", "words\n");
  machine.write("/sys/d", std::string(100'000, '1'));
  const SystemFiles files = machine.files();
  EXPECT_EQ(files.number("/sys/a"), 0x10de);
  EXPECT_EQ(files.number("/sys/b"), -1);
  EXPECT_FALSE(files.number("/sys/c").has_value());
  EXPECT_FALSE(files.text("/sys/d").has_value());
  EXPECT_FALSE(files.text("/sys/e").has_value());
  machine.link("/sys/out", "/sys/inside");
  EXPECT_EQ(files.target("/sys/out"), "/sys/inside");
  EXPECT_EQ(SystemFiles("/nonexistent-root").entries("/sys").size(), 0U);
  EXPECT_FALSE(SystemFiles("/nonexistent-root").exists("/proc"));
}

TEST_F(TwoProcessors, InfoListsDevices) {
  MachineLimits limits;
  limits.descriptors_soft = 1024;
  transport::rdma::Survey survey;
  survey.why_none = "no RDMA library: it is gone";
  const MachineInfo info = machine_info(machine_.files(), limits, survey);
  const auto parsed = nlohmann::json::parse(info_json(info));
  EXPECT_EQ(parsed["gpus"].size(), 5U);
  EXPECT_EQ(parsed["rdma_ports"][0]["port"], "mlx5_0:1");
  ASSERT_EQ(parsed["network_devices"].size(), 3U);
  EXPECT_EQ(parsed["network_devices"][1]["name"], "eth1");
  EXPECT_EQ(parsed["network_devices"][1]["mbit"], 25000);
  EXPECT_TRUE(parsed["network_devices"][2]["mbit"].is_null());
  EXPECT_EQ(parsed["limits"]["locked_bytes"], "unlimited");
  EXPECT_EQ(parsed["limits"]["descriptors"], 1024);
  const std::string text = info_text(info);
  EXPECT_NE(text.find("\n  rdma: RDMA"), std::string::npos);
  // What sysfs shows stays, and each port has the reason.
  EXPECT_EQ(parsed["rdma_ports"][0]["reason"], survey.why_none);
  EXPECT_FALSE(parsed["rdma_ports"][0]["used"]);
  EXPECT_TRUE(parsed["rdma_devices"][0]["limits"].is_null());
  EXPECT_NE(text.find("port 1: ACTIVE, Ethernet, 100 Gb/sec (4X EDR), ens3np0, GIDs: 2"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("used by sessions: no: no RDMA library: it is gone"), std::string::npos);
  EXPECT_NE(text.find("25000 Mbit/s"), std::string::npos);
}

// A device of both sources, and one that libibverbs alone knows.
TEST_F(TwoProcessors, InfoJoinsSysfsAndTheDevicesAnswers) {
  transport::rdma::SurveyedDevice device;
  device.name = "mlx5_0";
  device.firmware = "28.39";
  device.pieces_max = 30;
  device.inline_bytes_max = 220;
  device.pages_on_demand = true;
  transport::rdma::SurveyedPort port;
  port.state = "ACTIVE";
  port.packet_bytes = 4096;
  port.message_bytes_max = 1 << 30;
  port.gids = {{3, "RoCE v2", "::ffff:192.0.2.1"}};
  device.ports = {port};
  transport::rdma::SurveyedDevice other;
  other.name = "rdma9";
  other.why_not = "it cannot be opened: Permission denied";
  transport::rdma::SurveyedDevice two = device;
  two.name = "rdma8";
  two.ports.push_back(port);
  two.ports[1].number = 2;
  two.ports[1].why_not = "it is not active";
  const MachineInfo info =
      machine_info(machine_.files(), {}, {"/lib/libibverbs.so.1", "", {device, two, other}});
  const auto parsed = nlohmann::json::parse(info_json(info));
  EXPECT_EQ(parsed["rdma_library"], "/lib/libibverbs.so.1");
  ASSERT_EQ(parsed["rdma_devices"].size(), 3U);
  EXPECT_EQ(parsed["rdma_devices"][0]["limits"]["inline_bytes"], 220);
  EXPECT_TRUE(parsed["rdma_devices"][0]["limits"]["on_demand_paging"]);
  EXPECT_FALSE(parsed["rdma_devices"][0]["pci"].is_null());
  EXPECT_EQ(parsed["rdma_devices"][2]["reason"], other.why_not);
  ASSERT_EQ(parsed["rdma_ports"].size(), 3U);
  EXPECT_TRUE(parsed["rdma_ports"][0]["used"]);
  EXPECT_EQ(parsed["rdma_ports"][0]["rate"], "100 Gb/sec (4X EDR)");
  EXPECT_EQ(parsed["rdma_ports"][0]["gid_table"][0]["address"], "::ffff:192.0.2.1");
  EXPECT_EQ(parsed["rdma_ports"][2]["port"], "rdma8:2");
  EXPECT_EQ(parsed["rdma_ports"][2]["reason"], "it is not active");
  const std::string text = info_text(info);
  for (const char* line : {"RDMA devices, by /lib/libibverbs.so.1\n", "inline bytes: 220",
                           "      GID 3: RoCE v2, ::ffff:192.0.2.1\n      used by sessions: yes",
                           "  rdma9\n    it cannot be opened: Permission denied\n",
                           "used by sessions: no: it is not active\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

// The same words as the check peer-memory of health (health_test.cc), and each way by its name.
TEST_F(TwoProcessors, InfoShowsGpuDirect) {
  const auto shown = [this](const char* release, const char* driver, const char* modules) {
    machine_.write("/proc/sys/kernel/osrelease", release);
    machine_.write("/proc/driver/nvidia/version", driver);
    machine_.write("/proc/modules", modules);
    const MachineInfo info = machine_info(machine_.files(), {}, {});
    return std::pair(info_text(info), nlohmann::json::parse(info_json(info))["gpudirect"]);
  };
  constexpr const char* kOpen = "NVIDIA UNIX Open Kernel Module for x86_64  580.1\n";
  constexpr const char* kClosed = "NVIDIA UNIX x86_64 Kernel Module  580.1\n";
  constexpr const char* kPeer = "nvidia_peermem 16384 0 - Live 0x0\n";
  using Ways = std::vector<std::string>;
  const auto [both_text, both] = shown("6.1.0", kOpen, kPeer);
  EXPECT_NE(both_text.find("GPUDirect\n  possible by dma-buf, or else by nvidia_peermem\n"),
            std::string::npos)
      << both_text;
  EXPECT_TRUE(both["possible"]);
  EXPECT_EQ(both["ways"].get<Ways>(), (Ways{"dma-buf", "nvidia_peermem"}));
  EXPECT_TRUE(both["reason"].is_null());
  const auto [module_text, module] = shown("5.11.0", kOpen, kPeer);
  EXPECT_NE(module_text.find("possible by nvidia_peermem, and not by dma-buf: Linux 5.11.0"),
            std::string::npos)
      << module_text;
  EXPECT_EQ(module["ways"].get<Ways>(), Ways{"nvidia_peermem"});
  const auto [none_text, none] = shown("6.1.0", kClosed, "");
  EXPECT_NE(none_text.find("GPUDirect\n  no: RDMA devices do not reach GPU memory"),
            std::string::npos)
      << none_text;
  EXPECT_FALSE(none["possible"]);
  EXPECT_TRUE(none["ways"].empty());
  EXPECT_NE(none["reason"].get<std::string>().find("proprietary"), std::string::npos);
}

TEST(Info, MachineWithoutDevicesHasNoGpuDirect) {
  InventedMachine machine;
  machine.write("/proc/sys/kernel/osrelease", "6.1.0");
  machine.write("/proc/driver/nvidia/version", "NVIDIA UNIX Open Kernel Module for x86_64\n");
  const MachineInfo info = machine_info(machine.files(), {}, {});
  const auto found = nlohmann::json::parse(info_json(info))["gpudirect"];
  EXPECT_FALSE(found["possible"]);
  EXPECT_TRUE(found["ways"].empty());
  EXPECT_EQ(found["reason"], "it takes an NVIDIA GPU and an RDMA device");
}

TEST(Info, ServerShowsTheFirstTransportAndReasons) {
  client::LinkSecurity security;
  security.known_servers = "/nonexistent/known_servers";
  MachineInfo info;
  info.servers = {server_info("127.0.0.1:1", {}, security)};
  const auto local = nlohmann::json::parse(info_json(info))["servers"][0];
  EXPECT_EQ(local["network_device"], "lo");
  EXPECT_EQ(local["transports"][0]["transport"], "shm");
  EXPECT_TRUE(local["transports"][0]["first"]);
  EXPECT_FALSE(local["transports"][1]["used"]);
  EXPECT_TRUE(local["transports"][2]["used"]);
  EXPECT_FALSE(local["transports"][2]["first"]);
  EXPECT_FALSE(local["transports"][3]["used"]);
  const ServerInfo elsewhere = server_info("192.0.2.1:1", {}, security);
  EXPECT_TRUE(elsewhere.transports[3].first);
  EXPECT_FALSE(elsewhere.transports[0].why_not.empty());
  // A token that names the server's key goes over TLS only.
  Credential named;
  named.token.emplace();
  named.token->server.emplace();
  const ServerInfo by_token = server_info("127.0.0.1:1", named, security);
  EXPECT_NE(by_token.transports[0].why_not.find("named"), std::string::npos);
  EXPECT_TRUE(by_token.transports[3].first);
  EXPECT_NE(server_info("no-such-host.invalid:1", {}, security).failure, "");
}

}  // namespace
}  // namespace gpurun::tools
