// Transitions: what a queue pair says to the network, and how soon it reports a lost one.
#include "transport/rdma/transitions.h"

#include <gtest/gtest.h>

#include <chrono>

namespace gpurun::transport::rdma {
namespace {

constexpr std::uint8_t kReads = 16;

ibv_ah_attr path_of(const Port& port, const Offer& theirs = {}) {
  ibv_qp_attr attributes = {};
  EXPECT_NE(to_receive(port, theirs, kReads, &attributes) & IBV_QP_AV, 0);
  return attributes.ah_attr;
}

Port port_of(Link link) {
  Port port;
  port.link = link;
  port.gid_index = 3;
  return port;
}

// InfiniBand specification, 9.7.6.1.3: a device takes up to four times the timeout of each attempt.
TEST(RdmaTransitions, DeviceReportsALostFabricWithinTwoSeconds) {
  ibv_qp_attr attributes = {};
  const int mask = to_send({}, kReads, &attributes);
  EXPECT_NE(mask & IBV_QP_TIMEOUT, 0);
  EXPECT_NE(mask & IBV_QP_RETRY_CNT, 0);
  const std::chrono::nanoseconds attempt(4096LL << attributes.timeout);
  EXPECT_LT(4 * (attributes.retry_cnt + 1) * attempt, std::chrono::seconds(2));
  // Not so soon that a busy fabric counts as lost.
  EXPECT_GT((attributes.retry_cnt + 1) * attempt, std::chrono::milliseconds(400));
}

TEST(RdmaTransitions, GlobalHeaderFollowsTheNeedOfEitherPort) {
  Offer needs;
  needs.needs_global = 1;
  Port port = port_of(Link::kInfiniBand);
  EXPECT_EQ(path_of(port).is_global, 0);
  EXPECT_EQ(path_of(port, needs).is_global, 1);
  port.needs_global = true;
  EXPECT_EQ(path_of(port).is_global, 1);
  EXPECT_EQ(path_of(port).grh.sgid_index, 3);
  EXPECT_EQ(path_of(port_of(Link::kRoceV2)).is_global, 1);
}

TEST(RdmaTransitions, PacketsHaveTheClassOfTheirEnd) {
  Port port = port_of(Link::kRoceV2);
  EXPECT_EQ(path_of(port).sl, 0);
  EXPECT_EQ(path_of(port).grh.traffic_class, 0);
  port.packets = {3, 106};
  EXPECT_EQ(path_of(port).sl, 3);
  EXPECT_EQ(path_of(port).grh.traffic_class, 106);
}

}  // namespace
}  // namespace gpurun::transport::rdma
