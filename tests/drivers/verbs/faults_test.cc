// Faults of the verbs double: each one happens where its setting says, and nowhere else.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "tests/drivers/verbs/test_endpoint.h"

namespace gpurun::verbs_double {
namespace {

const TestLibrary& library() { return TestLibrary::get(); }

EndpointOptions impatient() {
  EndpointOptions options;
  options.timeout = 8;
  options.retries = 1;
  return options;
}

struct Pair {
  Pair() : a(impatient()), b(impatient()) {
    connect(a, b);
    to_b = b.numbers();
    for (std::uint64_t i = 0; i < 16; ++i) EXPECT_EQ(b.receive(100 + i, 0, 64), 0);
  }
  Endpoint a;
  Endpoint b;
  Numbers to_b;
};

TEST(VerbsFaults, PostFailsAtItsNumberAndKind) {
  const Settings settings("rdma0",
                          "post_fails at=2 kind=write error=EIO; post_fails at=17 kind=recv");
  Pair pair;
  EXPECT_EQ(pair.a.write(1, 0, 1, pair.to_b, 0), 0);
  EXPECT_EQ(pair.a.send(2, 0, 1), 0);
  EXPECT_EQ(pair.a.write(3, 0, 1, pair.to_b, 0), EIO);
  EXPECT_EQ(pair.a.write(4, 0, 1, pair.to_b, 0), 0);
  for (const std::uint64_t id : {1U, 2U, 4U}) EXPECT_EQ(pair.a.next().wr_id, id);
  EXPECT_EQ(pair.b.receive(1, 0, 0), ENOMEM);
}

TEST(VerbsFaults, RequestCompletesWithItsStatus) {
  const Settings settings("rdma0", "completes_with at=2 kind=send status=19");
  Pair pair;
  for (std::uint64_t i = 1; i <= 3; ++i) ASSERT_EQ(pair.a.send(i, 0, 1), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  const ibv_wc wc = pair.a.next();
  EXPECT_EQ(wc.wr_id, 2U);
  EXPECT_EQ(wc.status, IBV_WC_FATAL_ERR);
  EXPECT_EQ(pair.a.next().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.a.state(), IBV_QPS_ERR);
}

TEST(VerbsFaults, LostCompletionsNeverCome) {
  const Settings settings("rdma0",
                          "loses_completion at=1 kind=send; loses_completion at=2 kind=recv");
  Pair pair;
  for (std::uint64_t i = 1; i <= 3; ++i) ASSERT_EQ(pair.a.send(i, 0, 1), 0);
  EXPECT_EQ(pair.a.next().wr_id, 2U);
  EXPECT_EQ(pair.a.next().wr_id, 3U);
  EXPECT_TRUE(pair.a.quiet());
  EXPECT_EQ(pair.b.next().wr_id, 100U);
  EXPECT_EQ(pair.b.next().wr_id, 102U);
  EXPECT_TRUE(pair.b.quiet());
}

TEST(VerbsFaults, LatePlacementComesAfterItsCompletion) {
  const Settings settings("rdma0", "places_late at=1 kind=write_imm by=2");
  Pair pair;
  pair.a.memory[0] = 3;
  const std::size_t places[] = {500, 600, 700};
  const unsigned char expected[] = {0, 0, 3};  // At the first place.
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(pair.a.write(1, 0, 1, pair.to_b, places[i], IBV_SEND_SIGNALED, 0), 0);
    EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair.b.memory[500], expected[i]);
  }
  EXPECT_EQ(pair.b.memory[600], 3);
}

TEST(VerbsFaults, QpBreaksAfterItsPosts) {
  const Settings settings("rdma0", "breaks_qp posts=3");
  Pair pair;
  ASSERT_EQ(pair.a.send(1, 0, 1), 0);
  ASSERT_EQ(pair.a.send(2, 0, 1), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.send(3, 0, 1), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.a.event(), IBV_EVENT_QP_FATAL);
  EXPECT_EQ(pair.a.state(), IBV_QPS_ERR);
  ASSERT_EQ(pair.b.send(9, 0, 1), 0);
  EXPECT_EQ(pair.b.next().wr_id, 100U);
  EXPECT_EQ(pair.b.next().wr_id, 101U);
  EXPECT_EQ(pair.b.next().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(VerbsFaults, QpIsCutAfterItsBytes) {
  const Settings settings("rdma0", "cuts_qp bytes=100");
  Pair pair;
  ASSERT_EQ(pair.a.write(1, 0, 99, pair.to_b, 0), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.write(2, 0, 1, pair.to_b, 0), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(pair.b.quiet());
  EXPECT_EQ(pair.b.state(), IBV_QPS_RTS);
}

TEST(VerbsFaults, QpThatStopsReportsNothing) {
  const Settings settings("rdma0", "stops_qp posts=2");
  Pair pair;
  ASSERT_EQ(pair.a.write(1, 0, 99, pair.to_b, 0), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.write(2, 0, 1, pair.to_b, 0), 0);
  EXPECT_TRUE(pair.a.quiet());
  EXPECT_EQ(pair.a.state(), IBV_QPS_RTS);
}

TEST(VerbsFaults, PortGoesDownWithAnEvent) {
  const Settings settings;
  Pair pair;
  ASSERT_EQ(library().inject("port_down port=1"), 0);
  EXPECT_EQ(pair.a.event(), IBV_EVENT_PORT_ERR);
  ibv_port_attr port{};
  verbs_get_ctx(pair.a.context)->query_port(pair.a.context, 1, &port, sizeof(port));
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  ASSERT_EQ(pair.a.send(1, 0, 1), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(library().inject("port_up port=1"), 0);
  EXPECT_EQ(pair.a.event(), IBV_EVENT_PORT_ACTIVE);
  ASSERT_EQ(pair.a.to_state(IBV_QPS_RESET), 0);
  ASSERT_EQ(pair.b.to_state(IBV_QPS_RESET), 0);
  connect(pair.a, pair.b);
  ASSERT_EQ(pair.b.receive(5, 0, 1), 0);
  ASSERT_EQ(pair.a.send(6, 0, 1), 0);
  EXPECT_EQ(pair.b.next().wr_id, 5U);
  testing::internal::CaptureStderr();
  EXPECT_EQ(library().inject("port_sideways"), EINVAL);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("port_sideways"), std::string::npos);
}

TEST(VerbsFaults, RegistrationsEndAtTheLimit) {
  const Settings settings("rdma0", "memlock bytes=1048676");
  Endpoint a;  // Registers 1 MiB.
  unsigned char more[101];
  EXPECT_EQ(library().reg_mr(a.pd, more, 101, 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_mr* region = library().reg_mr(a.pd, more, 100, 0);
  ASSERT_NE(region, nullptr);
  library().dereg_mr(region);
  region = library().reg_mr(a.pd, more, 100, 0);
  EXPECT_NE(region, nullptr);
  library().dereg_mr(region);
}

TEST(VerbsFaults, DeviceDoesNotOpen) {
  const Settings settings("rdma0", "open_fails error=EACCES");
  ibv_device** list = library().get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(library().open_device(list[0]), nullptr);
  EXPECT_EQ(errno, EACCES);
  library().free_device_list(list);
}

}  // namespace
}  // namespace gpurun::verbs_double
