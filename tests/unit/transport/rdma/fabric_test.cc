// Fabrics: which ports are used, and the reason against each other one.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <chrono>
#include <string>
#include <utility>

#include "tests/support/rdma_pair.h"
#include "transport/rdma/survey.h"

namespace gpurun::transport::rdma {
namespace {

using test::VerbsDouble;

Gid local() {
  Gid gid{};
  gid[10] = gid[11] = 0xff;
  gid[12] = 127;
  gid[15] = 1;
  return gid;
}

struct Opened {
  Result<std::unique_ptr<Fabric>> fabric = Status(Code::kUnavailable, "not opened");
  std::vector<Rejected> rejected;
};

Opened open(const std::string& devices, const AllowedPorts& allowed = test::all_ports(),
            const std::string& faults = "") {
  VerbsDouble::set(devices, faults);
  Opened opened;
  opened.fabric = open_fabric(allowed, &opened.rejected);
  return opened;
}

TEST(RdmaFabric, PortsNeedTrustAndMayBeRestricted) {
  EXPECT_TRUE(open("mlx5_0 ports=2", {{"mlx5_0:2"}, {}}).fabric.ok());
  Opened none = open("mlx5_0", {{}, {}});
  EXPECT_EQ(none.fabric.status().message(), "mlx5_0:1: it is not among the trusted fabrics");
  none = open("mlx5_0;mlx5_1", {{"mlx5_0", "mlx5_1"}, {"mlx5_1"}});
  EXPECT_TRUE(none.fabric.ok());
  ASSERT_EQ(none.rejected.size(), 1U);
  EXPECT_EQ(none.rejected[0].name, "mlx5_0:1");
  EXPECT_EQ(none.rejected[0].reason, "GPURUN_NET_DEVICES does not name it");
}

TEST(RdmaFabric, UnfitDevicesAreRejectedWithTheReason) {
  EXPECT_EQ(open("").fabric.status().message(), "this machine has no RDMA device");
  EXPECT_NE(open("rdma0", test::all_ports(), "open_fails error=EACCES")
                .fabric.status()
                .message()
                .find("rdma0: it cannot be opened: Permission denied"),
            std::string::npos);
  EXPECT_EQ(open("rdma0 wr=100").fabric.status().message(), "rdma0:1: its queues are too short");
}

TEST(RdmaFabric, PortNeedsTheAddressOfTheConnection) {
  Opened elsewhere = open("rdma0 gids=v2/192.0.2.1");
  ASSERT_TRUE(elsewhere.fabric.ok());
  EXPECT_NE((*elsewhere.fabric)
                ->make_end(local(), nullptr)
                .status()
                .message()
                .find("rdma0:1: none of its GIDs is this machine's address of the connection"),
            std::string::npos);
}

// A silent port costs seconds, while the other end of the session waits.
TEST(RdmaFabric, PortsOfOtherAddressesAreNotTested) {
  VerbsDouble::set("elsewhere gids=v2/192.0.2.1; here");
  std::vector<Rejected> rejected;
  const Gid address = local();
  const verbs_double_counts before = VerbsDouble::counts();
  auto fabric = open_fabric(test::all_ports(), &rejected, {}, &address);
  const std::uint64_t of_one = VerbsDouble::counts().post_calls - before.post_calls;
  ASSERT_TRUE(fabric.ok()) << fabric.status().to_string();
  EXPECT_EQ((*fabric)->ports(), std::vector<std::string>{"here:1"});
  ASSERT_EQ(rejected.size(), 1U);
  EXPECT_EQ(rejected[0].name, "elsewhere:1");
  EXPECT_EQ(rejected[0].reason, "none of its GIDs is this machine's address of the connection");
  VerbsDouble::set("elsewhere gids=v2/192.0.2.1; here");
  const verbs_double_counts between = VerbsDouble::counts();
  ASSERT_TRUE(open_fabric(test::all_ports(), &rejected).ok());
  EXPECT_EQ(VerbsDouble::counts().post_calls - between.post_calls, 2 * of_one);
}

// The tests of all ports end within the time that the other end waits.
TEST(RdmaFabric, SilentPortsCostBoundedTime) {
  const auto started = std::chrono::steady_clock::now();
  Opened silent = open("a;b;c;d", test::all_ports(), "delays us=10000000");
  EXPECT_FALSE(silent.fabric.ok());
  EXPECT_EQ(silent.rejected.size(), 4U);
  EXPECT_EQ(silent.rejected.back().reason, "the tests of other ports took too long");
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(9));
}

TEST(RdmaFabric, RoceV2IsPreferred) {
  Opened opened = open("old gids=v1/127.0.0.1; new gids=v1/127.0.0.1,v2/127.0.0.1");
  ASSERT_TRUE(opened.fabric.ok()) << opened.fabric.status().to_string();
  EXPECT_EQ((*opened.fabric)->ports(), (std::vector<std::string>{"old:1", "new:1"}));
  auto end = (*opened.fabric)->make_end(local(), nullptr);
  ASSERT_TRUE(end.ok());
  EXPECT_EQ((*end)->port(), "new:1");
  EXPECT_EQ((*end)->offer().link, static_cast<std::uint8_t>(Link::kRoceV2));
  EXPECT_EQ((*end)->offer().needs_global, 0) << "an older end would refuse the offer";
  // The answer to an end with RoCE v1 is of the other port.
  Offer theirs = (*end)->offer();
  theirs.link = static_cast<std::uint8_t>(Link::kRoceV1);
  auto answer = (*opened.fabric)->make_end(local(), &theirs);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ((*answer)->offer().link, theirs.link);
}

TEST(RdmaSurvey, ListsLimitsPortsAndReasons) {
  VerbsDouble::set(
      "mlx5_0 ports=2 inline=200 sge=7 message=65536 odp=1 atomics=1; old profile=pvrdma",
      "port_down port=2");
  const Survey found = survey({{"mlx5_0"}, {}});
  EXPECT_EQ(found.why_none, "");
  EXPECT_NE(found.library.find("libibverbs"), std::string::npos);
  ASSERT_EQ(found.devices.size(), 2U);
  const SurveyedDevice& device = found.devices[0];
  EXPECT_EQ(device.name, "mlx5_0");
  EXPECT_EQ(device.firmware, "double");
  EXPECT_EQ(device.why_not, "");
  EXPECT_EQ(device.pieces_max, 7U);
  EXPECT_LE(device.inline_bytes_max.value_or(0), 200U);
  EXPECT_GE(device.inline_bytes_max.value_or(0), 128U);
  EXPECT_TRUE(device.pages_on_demand);
  EXPECT_TRUE(device.atomics);
  ASSERT_EQ(device.ports.size(), 2U);
  EXPECT_EQ(device.ports[0].why_not, "");
  EXPECT_EQ(device.ports[0].state, "ACTIVE");
  EXPECT_EQ(device.ports[0].link_layer, "Ethernet");
  EXPECT_EQ(device.ports[0].message_bytes_max, 65536U);
  EXPECT_EQ(device.ports[0].packet_bytes, 1024U);
  EXPECT_EQ(device.ports[0].gbit, 100);
  EXPECT_FALSE(device.ports[0].gids.empty());
  // The fault begins with the first request, which is that of the probe of port 1.
  EXPECT_EQ(device.ports[1].why_not, "it is not active");
  EXPECT_EQ(found.devices[1].inline_bytes_max, 0U);
  EXPECT_FALSE(found.devices[1].pages_on_demand);
  EXPECT_EQ(found.devices[1].ports[0].gids[0].type, "RoCE v1");
  EXPECT_EQ(found.devices[1].ports[0].why_not, "it is not among the trusted fabrics");
}

// Both machines may have a port in each of two subnets.
TEST(RdmaFabric, AnswerIsOfThePortInTheSubnetOfTheOffer) {
  Opened opened = open(
      "first link=infiniband gids=ib/fd00:0:0:1::1; second link=infiniband gids=ib/fd00:0:0:2::1");
  ASSERT_TRUE(opened.fabric.ok()) << opened.fabric.status().to_string();
  auto end = (*opened.fabric)->make_end(local(), nullptr);
  ASSERT_TRUE(end.ok()) << end.status().to_string();
  EXPECT_EQ((*end)->port(), "first:1");
  Offer theirs = (*end)->offer();
  for (const auto& [subnet, port] : {std::pair{1, "first:1"}, std::pair{2, "second:1"}}) {
    theirs.gid[7] = static_cast<std::uint8_t>(subnet);
    auto answer = (*opened.fabric)->make_end(local(), &theirs);
    ASSERT_TRUE(answer.ok()) << answer.status().to_string();
    EXPECT_EQ((*answer)->port(), port);
  }
}

TEST(RdmaSurvey, DevicesThatCannotBeOpenedHaveTheReason) {
  VerbsDouble::set("rdma0", "open_fails error=EACCES");
  const Survey found = survey(test::all_ports());
  ASSERT_EQ(found.devices.size(), 1U);
  EXPECT_EQ(found.devices[0].why_not, "it cannot be opened: Permission denied");
  EXPECT_TRUE(found.devices[0].ports.empty());
  VerbsDouble::set("");
  EXPECT_TRUE(survey(test::all_ports()).devices.empty());
}

// A low limit of locked memory gives smaller rings, and then a sentence that says what to do.
TEST(RdmaFabric, LimitOfLockedMemoryGivesSmallerRings) {
  Opened opened = open("rdma0", test::all_ports(), "memlock bytes=1200000");
  ASSERT_TRUE(opened.fabric.ok()) << opened.fabric.status().to_string();
  auto end = (*opened.fabric)->make_end(local(), nullptr);
  ASSERT_TRUE(end.ok()) << end.status().to_string();
  EXPECT_EQ((*end)->offer().ring_bytes, 256U << 10);
  const rlimit before = [] {
    rlimit limit = {};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return limit;
  }();
  const rlimit low = {1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  auto second = (*opened.fabric)->make_end(local(), &(*end)->offer());
  EXPECT_EQ(second.status().code(), Code::kResourceExhausted);
  EXPECT_NE(second.status().message().find("ulimit -l"), std::string::npos)
      << second.status().message();
  setrlimit(RLIMIT_MEMLOCK, &before);
}

// Every field of an offer comes from an untrusted peer.
TEST(RdmaFabric, OffersOfLiarsAreRefused) {
  Opened opened = open("rdma0");
  ASSERT_TRUE(opened.fabric.ok());
  auto end = (*opened.fabric)->make_end(local(), nullptr);
  ASSERT_TRUE(end.ok());
  Offer theirs = (*end)->offer();
  theirs.ring_bytes = kRingBytesMax * 2;
  EXPECT_EQ((*opened.fabric)->make_end(local(), &theirs).status().code(), Code::kProtocol);
  EXPECT_EQ((*end)->connect(theirs).status().code(), Code::kProtocol);
}

}  // namespace
}  // namespace gpurun::transport::rdma
