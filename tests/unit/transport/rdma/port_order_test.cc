// Port order: of several ports that lead to the peer, the one that is named first is used, and then
// the one that is nearest to the session's GPU or to the process.
#include "transport/rdma/port_order.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/rdma_pair.h"
#include "tests/unit/tools/gpuctl/invented_machine.h"

namespace gpurun::transport::rdma {
namespace {

using test::VerbsDouble;

// Two processors, each with a GPU and an RDMA device.
class PortOrder : public testing::Test {
 protected:
  PortOrder() {
    const std::string left = "pci0000:3a/0000:3a:00.0/0000:3b:00.0/";
    machine_.gpu(left + "0000:3c:00.0/0000:3d:00.0");
    machine_.verbs("near",
                   machine_.pci(left + "0000:3c:01.0/0000:3e:00.0", "0x15b3", "0x1", "0x02"),
                   "4: ACTIVE");
    machine_.gpu("pci0000:ae/0000:ae:00.0/0000:af:00.0", 1);
    machine_.verbs("far",
                   machine_.pci("pci0000:ae/0000:ae:01.0/0000:b0:00.0", "0x15b3", "0x1", "0x02", 1),
                   "4: ACTIVE");
    machine_.verbs("unknown", "", "4: ACTIVE");
  }

  NearTo near_gpu(int number) {
    NearTo near;
    near.files = machine_.files();
    std::vector<PciDevice> gpus;
    for (const PciDevice& each : pci_devices(near.files)) {
      if (is_nvidia_gpu(each)) gpus.push_back(each);
    }
    near.gpus = {gpus.at(static_cast<std::size_t>(number))};
    return near;
  }
  NearTo near_node(int node) {
    NearTo near;
    near.files = machine_.files();
    near.node = node;
    return near;
  }
  // The port that a session takes, with the reason, on devices "far", "near" and "unknown".
  std::string chosen(const NearTo& near, const AllowedPorts& allowed = {{"*"}, {}, {}},
                     const char* devices = "far; near; unknown", unsigned index = 0) {
    VerbsDouble::set(devices);
    std::vector<Rejected> rejected;
    auto fabric = open_fabric(allowed, &rejected, near);
    EXPECT_TRUE(fabric.ok()) << fabric.status().to_string();
    Gid local{};
    local[10] = local[11] = 0xff;
    local[12] = 127;
    local[15] = 1;
    auto end = (*fabric)->make_end(local, nullptr, {index, 9});
    EXPECT_TRUE(end.ok()) << end.status().to_string();
    return (*end)->port() + "|" + (*end)->why_port();
  }

  tools::InventedMachine machine_;
};

TEST_F(PortOrder, NearestToTheGpuComesFirst) {
  EXPECT_EQ(chosen(near_gpu(0)), "near:1|PIX to the GPU");
  EXPECT_EQ(chosen(near_gpu(1)), "far:1|PHB to the GPU");
  NearTo both = near_gpu(0);
  both.gpus.push_back(near_gpu(1).gpus.front());
  EXPECT_EQ(chosen(both), "near:1|PIX to the GPU");
}

TEST_F(PortOrder, NearestToTheProcessComesFirstWithoutGpus) {
  EXPECT_EQ(chosen(near_node(0)), "near:1|on the NUMA node of the process");
  EXPECT_EQ(chosen(near_node(1)), "far:1|on the NUMA node of the process");
  EXPECT_EQ(chosen(near_node(-1)), "far:1|");  // Nothing prefers one.
  EXPECT_EQ(chosen(near_gpu(0), {{"*"}, {}, {}}, "near"), "near:1|");
}

TEST_F(PortOrder, NamedPortsComeBeforeNearOnes) {
  EXPECT_EQ(chosen(near_gpu(0), {{"*"}, {}, {"unknown", "far:1", "near"}}),
            "unknown:1|named first");
  EXPECT_EQ(chosen(near_gpu(0), {{"*"}, {"far", "near"}, {"far", "near"}}), "far:1|named first");
  // "*" names none before another.
  EXPECT_EQ(chosen(near_gpu(0), {{"*"}, {}, {"*"}}), "near:1|PIX to the GPU");
  EXPECT_EQ(chosen(near_gpu(0), {{"*"}, {}, {"far", "*"}}), "far:1|named first");
}

// The log and the first bulk connection have the first port, and each further one the next.
TEST_F(PortOrder, BulkConnectionsAreSpreadOverThePorts) {
  const std::vector<std::string> wanted = {"near:1|PIX to the GPU", "near:1|PIX to the GPU",
                                           "far:1|rail 2 of 3",     "unknown:1|rail 3 of 3",
                                           "near:1|PIX to the GPU", "far:1|rail 2 of 3"};
  for (unsigned index = 0; index < wanted.size(); ++index) {
    EXPECT_EQ(chosen(near_gpu(0), {{"*"}, {}, {}}, "far; near; unknown", index), wanted[index]);
  }
  // A port of another kind of link is no rail.
  const char* mixed = "far gids=v1/127.0.0.1; near gids=v2/127.0.0.1";
  EXPECT_EQ(chosen(near_gpu(0), {{"*"}, {}, {}}, mixed, 2).substr(0, 6), "near:1");
}

// Also before a port with a better GID.
TEST_F(PortOrder, NamedPortComesBeforeABetterGid) {
  const char* devices = "far gids=v1/127.0.0.1; near gids=v2/127.0.0.1";
  EXPECT_EQ(chosen(near_gpu(1), {{"*"}, {}, {}}, devices).substr(0, 6), "near:1");
  EXPECT_EQ(chosen(near_gpu(0), {{"*"}, {}, {"far"}}, devices), "far:1|named first");
}

}  // namespace
}  // namespace gpurun::transport::rdma
