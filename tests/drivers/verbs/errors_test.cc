// Errors of the verbs double: states, wrong access, missing receives, lost peers, and flushed work.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <vector>

#include "tests/drivers/verbs/test_endpoint.h"

namespace gpurun::verbs_double {
namespace {

const TestLibrary& library() { return TestLibrary::get(); }

EndpointOptions impatient() {
  EndpointOptions options;
  options.timeout = 8;  // A lost peer costs (1 + 1) x 1 ms.
  options.retries = 1;
  return options;
}

void expect_flushed(Endpoint& end, const std::vector<std::uint64_t>& ids) {
  for (const std::uint64_t id : ids) {
    const ibv_wc wc = end.next();
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR) << library().wc_status_str(wc.status);
  }
  EXPECT_TRUE(end.quiet());
  EXPECT_EQ(end.state(), IBV_QPS_ERR);
}

TEST(VerbsStates, FollowTheTableOfTheKernel) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  EXPECT_EQ(a.state(), IBV_QPS_RESET);
  EXPECT_EQ(a.to_ready_to_receive(b.numbers()), EINVAL);
  EXPECT_EQ(a.to_ready_to_send(), EINVAL);
  EXPECT_EQ(a.to_state(IBV_QPS_INIT), EINVAL);  // Its attributes are missing.
  EXPECT_EQ(a.receive(1, 0, 0), EINVAL);
  ASSERT_EQ(a.to_init(), 0);
  EXPECT_EQ(a.receive(1, 0, 0), 0);
  EXPECT_EQ(a.send(1, 0, 0), EINVAL);
  EXPECT_EQ(a.to_ready_to_send(), EINVAL);
  ASSERT_EQ(a.to_ready_to_receive(b.numbers()), 0);
  EXPECT_EQ(a.send(1, 0, 0), EINVAL);
  EXPECT_EQ(a.to_ready_to_receive(b.numbers()), EINVAL);
  ASSERT_EQ(a.to_ready_to_send(), 0);
  EXPECT_EQ(a.to_init(), EINVAL);
  EXPECT_EQ(a.state(), IBV_QPS_RTS);
  EXPECT_EQ(a.to_state(IBV_QPS_ERR), 0);
  EXPECT_EQ(a.to_ready_to_send(), EINVAL);
  EXPECT_EQ(a.to_state(IBV_QPS_RESET), 0);
  EXPECT_TRUE(a.quiet());  // RESET removes the completions of the QP.
  EXPECT_EQ(a.state(), IBV_QPS_RESET);
}

TEST(VerbsStates, WrongAttributesAreRefused) {
  const Settings settings;
  Endpoint a;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 2;
  constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  EXPECT_EQ(library().modify_qp(a.qp, &attr, kInit), EINVAL);
  attr.port_num = 1;
  EXPECT_EQ(library().modify_qp(a.qp, &attr, kInit | IBV_QP_TIMEOUT), EINVAL);
  attr.pkey_index = 1;
  EXPECT_EQ(library().modify_qp(a.qp, &attr, kInit), EINVAL);
  attr.pkey_index = 0;
  EXPECT_EQ(library().modify_qp(a.qp, &attr, kInit), 0);
}

TEST(VerbsStates, ResetQpConnectsAgain) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  for (std::uint64_t round = 0; round < 3; ++round) {
    connect(a, b);
    ASSERT_EQ(b.receive(round, 0, 0), 0);
    ASSERT_EQ(a.send(round, 0, 0), 0);
    EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(b.next().wr_id, round);
    ASSERT_EQ(a.to_state(IBV_QPS_RESET), 0);
    ASSERT_EQ(b.to_state(IBV_QPS_RESET), 0);
  }
}

// A request that the peer refuses: status at the requester, ERR and an event at the peer, work
// flushed at both ends.
void expect_refusal(const std::function<int(Endpoint&, Numbers)>& post, unsigned peer_access) {
  const Settings settings;
  Endpoint a;
  EndpointOptions options;
  options.access = peer_access;
  Endpoint b(options);
  a.connect(b.numbers());
  ASSERT_EQ(a.receive(3, 0, 0), 0);
  ASSERT_EQ(post(a, b.numbers()), 0);  // b is not ready, so that all posts come before the refusal.
  ASSERT_EQ(a.send(11, 0, 0, 0), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(b.receive(1, 0, 0), 0);
  ASSERT_EQ(b.receive(2, 0, 0), 0);
  ASSERT_EQ(b.to_ready_to_receive(a.numbers()), 0);
  const ibv_wc wc = a.next();
  EXPECT_EQ(wc.wr_id, 10U);
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR) << library().wc_status_str(wc.status);
  expect_flushed(a, {11, 3});
  EXPECT_EQ(b.event(), IBV_EVENT_QP_ACCESS_ERR);
  expect_flushed(b, {1, 2});
}

constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

TEST(VerbsAccess, WrongKeyIsRefused) {
  expect_refusal(
      [](Endpoint& a, Numbers peer) {
        ++peer.key;
        return a.write(10, 0, 1, peer, 0);
      },
      kAll);
}

TEST(VerbsAccess, RangeBeyondTheRegionIsRefused) {
  expect_refusal([](Endpoint& a,
                    const Numbers& peer) { return a.write(10, 0, 2, peer, Endpoint::kMemory - 1); },
                 kAll);
  expect_refusal(
      [](Endpoint& a, const Numbers& peer) { return a.read(10, 0, 1, peer, Endpoint::kMemory); },
      kAll);
}

TEST(VerbsAccess, MissingPermissionIsRefused) {
  expect_refusal([](Endpoint& a, const Numbers& peer) { return a.write(10, 0, 1, peer, 0); },
                 kAll & ~static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE));
  expect_refusal([](Endpoint& a, const Numbers& peer) { return a.read(10, 0, 1, peer, 0); },
                 kAll & ~static_cast<unsigned>(IBV_ACCESS_REMOTE_READ));
}

TEST(VerbsAccess, QpWithoutPermissionRefusesToo) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  connect(a, b);
  ibv_qp_attr attr{};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  ASSERT_EQ(library().modify_qp(b.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
  ASSERT_EQ(a.read(1, 0, 1, b.numbers(), 0), 0);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(a.write(2, 0, 1, b.numbers(), 0), 0);
  EXPECT_EQ(a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(VerbsAccess, DeregisteredMemoryIsRefused) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  connect(a, b);
  Numbers peer = b.numbers();
  std::vector<unsigned char> other(64);
  ibv_mr* region = library().reg_mr(b.pd, other.data(), other.size(), static_cast<int>(kAll));
  ASSERT_NE(region, nullptr);
  peer.key = region->rkey;
  peer.address = reinterpret_cast<std::uint64_t>(other.data());
  ASSERT_EQ(a.read(1, 0, 64, peer, 0), 0);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(library().dereg_mr(region), 0);
  ASSERT_EQ(a.read(2, 0, 64, peer, 0), 0);
  EXPECT_EQ(a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(VerbsAccess, OwnWrongKeyFailsAfterEarlierRequests) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  connect(a, b);
  ASSERT_EQ(a.write(1, 0, 1, b.numbers(), 0), 0);
  ibv_sge piece = a.piece(0, 1);
  ++piece.lkey;
  ibv_send_wr request{};
  request.wr_id = 2;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  ASSERT_EQ(Endpoint::post(a.qp, request), 0);
  ibv_wc wc = a.next();
  EXPECT_EQ(wc.wr_id, 1U);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  wc = a.next();
  EXPECT_EQ(wc.wr_id, 2U);
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(a.state(), IBV_QPS_ERR);
}

TEST(VerbsAccess, ReceiveThatIsTooSmallFailsAtBothEnds) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  connect(a, b);
  ASSERT_EQ(b.receive(1, 0, 3), 0);
  ASSERT_EQ(a.send(2, 0, 4), 0);
  EXPECT_EQ(a.next().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(b.next().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(b.state(), IBV_QPS_ERR);
}

TEST(VerbsNotReady, RequestWaitsForAReceive) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  connect(a, b);
  const auto before = library().counts().not_ready;
  ASSERT_EQ(a.send(1, 0, 0), 0);
  while (library().counts().not_ready == before) sched_yield();
  EXPECT_TRUE(a.quiet());
  ASSERT_EQ(b.receive(2, 0, 0), 0);
  EXPECT_EQ(b.next().wr_id, 2U);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
}

TEST(VerbsNotReady, LimitedRetriesEnd) {
  const Settings settings;
  EndpointOptions options;
  options.not_ready_retries = 1;
  Endpoint a(options);
  Endpoint b;
  connect(a, b);
  ASSERT_EQ(a.send(1, 0, 0), 0);
  ASSERT_EQ(a.send(2, 0, 0, 0), 0);
  EXPECT_EQ(a.next().status, IBV_WC_RNR_RETRY_EXC_ERR);
  expect_flushed(a, {2});
}

// A request to a peer that does not know the QP by these numbers.
void expect_lost(const std::function<void(Numbers&)>& change) {
  const Settings settings;
  Endpoint a(impatient());
  Endpoint b;
  Numbers to_b = b.numbers();
  Numbers to_a = a.numbers();
  change(to_a);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(b.to_ready_to_receive(to_a), 0);
  ASSERT_EQ(b.receive(1, 0, 0), 0);
  a.connect(to_b);
  ASSERT_EQ(a.send(2, 0, 0), 0);
  ASSERT_EQ(a.send(3, 0, 0), 0);
  const ibv_wc wc = a.next();
  EXPECT_EQ(wc.wr_id, 2U);
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR) << library().wc_status_str(wc.status);
  expect_flushed(a, {3});
  EXPECT_TRUE(b.quiet());
  EXPECT_EQ(b.state(), IBV_QPS_RTR);
}

TEST(VerbsLostPeer, WrongPsnFindsNoPeer) {
  expect_lost([](Numbers& a) { ++a.psn; });
}
TEST(VerbsLostPeer, WrongQpNumberFindsNoPeer) {
  expect_lost([](Numbers& a) { ++a.qp; });
}
TEST(VerbsLostPeer, WrongGidFindsNoPeer) {
  expect_lost([](Numbers& a) { ++a.gid.raw[15]; });
}

TEST(VerbsLostPeer, PeerThatServedOnceTakesNoNewConnection) {
  const Settings settings;
  Endpoint a(impatient());
  Endpoint b;
  connect(a, b);
  ASSERT_EQ(b.receive(1, 0, 0), 0);
  ASSERT_EQ(b.receive(2, 0, 0), 0);
  ASSERT_EQ(a.send(3, 0, 0), 0);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.next().wr_id, 1U);
  ASSERT_EQ(a.to_state(IBV_QPS_RESET), 0);
  a.connect(b.numbers());
  ASSERT_EQ(a.send(4, 0, 0), 0);
  EXPECT_EQ(a.next().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(b.quiet());
}

TEST(VerbsLostPeer, LidsMustFitOnInfiniband) {
  const Settings settings("ib0 link=infiniband lid=9");
  EndpointOptions options = impatient();
  options.by_gid = false;
  options.gid_index = 0;
  for (const bool right : {true, false}) {
    Endpoint a(options);
    Endpoint b(options);
    Numbers to_b = b.numbers();
    EXPECT_EQ(to_b.lid, 9);
    if (!right) ++to_b.lid;
    b.connect(a.numbers());
    ASSERT_EQ(b.receive(1, 0, 0), 0);
    a.connect(to_b);
    ASSERT_EQ(a.send(2, 0, 0), 0);
    EXPECT_EQ(a.next().status, right ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
  }
}

TEST(VerbsLostPeer, DestroyedPeerEndsRequestsButNoReceives) {
  const Settings settings;
  Endpoint a(impatient());
  auto b = std::make_unique<Endpoint>();
  connect(a, *b);
  ASSERT_EQ(b->receive(1, 0, 0), 0);
  ASSERT_EQ(a.receive(9, 0, 0), 0);
  ASSERT_EQ(a.send(2, 0, 0), 0);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  b.reset();
  EXPECT_TRUE(a.quiet());
  EXPECT_EQ(a.state(), IBV_QPS_RTS);
  ASSERT_EQ(a.send(3, 0, 0, 0), 0);
  EXPECT_EQ(a.next().status, IBV_WC_RETRY_EXC_ERR);
  expect_flushed(a, {9});
}

TEST(VerbsFlush, WorkCompletesInOrderAlsoWhenPostedLater) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  const Numbers to_b = b.numbers();
  a.connect(to_b);  // b is not ready, so that nothing leaves.
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(a.write(i, 0, 1, to_b, 0, 0), 0);
  ASSERT_EQ(a.receive(8, 0, 0), 0);
  ASSERT_EQ(a.to_state(IBV_QPS_ERR), 0);
  ASSERT_EQ(a.write(3, 0, 1, to_b, 0, 0), 0);
  ASSERT_EQ(a.receive(9, 0, 0), 0);
  expect_flushed(a, {0, 1, 2, 8, 3, 9});
}

TEST(VerbsObjects, ThoseInUseAreNotDestroyed) {
  const Settings settings;
  Endpoint a;
  EXPECT_EQ(library().dealloc_pd(a.pd), EBUSY);
  EXPECT_EQ(library().destroy_cq(a.cq), EBUSY);
  EXPECT_EQ(library().destroy_comp_channel(a.channel), EBUSY);
}

}  // namespace
}  // namespace gpurun::verbs_double
