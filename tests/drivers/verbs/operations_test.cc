// Operations of the verbs double: data, order, notification and queues of two QPs in one process.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/drivers/verbs/test_endpoint.h"

namespace gpurun::verbs_double {
namespace {

const TestLibrary& library() { return TestLibrary::get(); }

void expect_wc(const ibv_wc& wc, std::uint64_t id, ibv_wc_opcode opcode,
               ibv_wc_status status = IBV_WC_SUCCESS) {
  EXPECT_EQ(wc.wr_id, id);
  EXPECT_EQ(wc.opcode, opcode);
  EXPECT_EQ(wc.status, status) << library().wc_status_str(wc.status);
}

struct Pair {
  explicit Pair(const EndpointOptions& options = {}) : a(options), b(options) {
    connect(a, b);
    to_b = b.numbers();
  }
  Endpoint a;
  Endpoint b;
  Numbers to_b;
};

TEST(VerbsOperations, SendArrivesInThePostedReceive) {
  const Settings settings;
  Pair pair;
  ASSERT_EQ(pair.b.receive(7, 100, 64), 0);
  std::fill_n(pair.a.memory.begin(), 40, 0x5a);
  ASSERT_EQ(pair.a.send(8, 0, 40), 0);
  expect_wc(pair.a.next(), 8, IBV_WC_SEND);
  const ibv_wc wc = pair.b.next();
  expect_wc(wc, 7, IBV_WC_RECV);
  EXPECT_EQ(wc.byte_len, 40U);
  EXPECT_EQ(wc.qp_num, pair.b.qp->qp_num);
  EXPECT_EQ(wc.src_qp, pair.a.qp->qp_num);
  EXPECT_EQ(wc.wc_flags, 0U);
  EXPECT_EQ(pair.b.memory[139], 0x5a);
  EXPECT_EQ(pair.b.memory[140], 0);
}

TEST(VerbsOperations, ImmediateDataArrivesWithSendsAndWrites) {
  const Settings settings;
  Pair pair;
  ASSERT_EQ(pair.b.receive(1, 0, 64), 0);
  ASSERT_EQ(pair.b.receive(2, 0, 0), 0);
  ASSERT_EQ(pair.a.send(3, 0, 4, IBV_SEND_SIGNALED, htonl(11)), 0);
  pair.a.memory[500] = 0x33;
  ASSERT_EQ(pair.a.write(4, 500, 1, pair.to_b, 900, IBV_SEND_SIGNALED, htonl(12)), 0);
  ibv_wc wc = pair.b.next();
  expect_wc(wc, 1, IBV_WC_RECV);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ntohl(wc.imm_data), 11U);
  wc = pair.b.next();
  expect_wc(wc, 2, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.byte_len, 1U);
  EXPECT_EQ(ntohl(wc.imm_data), 12U);
  EXPECT_EQ(pair.b.memory[900], 0x33);
  expect_wc(pair.a.next(), 3, IBV_WC_SEND);
  expect_wc(pair.a.next(), 4, IBV_WC_RDMA_WRITE);
}

TEST(VerbsOperations, WriteIsPlacedAtTheNextReceiveCompletion) {
  const Settings settings;
  Pair pair;
  ASSERT_EQ(pair.b.receive(1, 0, 0), 0);
  pair.a.memory[0] = 1;
  ASSERT_EQ(pair.a.write(2, 0, 1, pair.to_b, 10), 0);
  expect_wc(pair.a.next(), 2, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(pair.b.memory[10], 0);  // Polling of data bytes sees nothing.
  ASSERT_EQ(pair.a.write(3, 0, 0, pair.to_b, 0, IBV_SEND_SIGNALED, 0), 0);
  expect_wc(pair.b.next(), 1, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(pair.b.memory[10], 1);
}

TEST(VerbsOperations, SendPlacesEarlierWritesToo) {
  const Settings settings;
  Pair pair;
  ASSERT_EQ(pair.b.receive(1, 0, 8), 0);
  pair.a.memory[0] = 1;
  ASSERT_EQ(pair.a.write(2, 0, 1, pair.to_b, 10, 0), 0);
  ASSERT_EQ(pair.a.send(3, 0, 1, 0), 0);
  expect_wc(pair.b.next(), 1, IBV_WC_RECV);
  EXPECT_EQ(pair.b.memory[10], 1);
}

TEST(VerbsOperations, ReadReturnsWhatAnEarlierWriteBrought) {
  const Settings settings;
  Pair pair;
  pair.a.memory[0] = 0x77;
  pair.b.memory[21] = 0x78;
  ASSERT_EQ(pair.a.write(1, 0, 1, pair.to_b, 20, 0), 0);
  ASSERT_EQ(pair.a.read(2, 30, 2, pair.to_b, 20), 0);
  expect_wc(pair.a.next(), 2, IBV_WC_RDMA_READ);
  EXPECT_EQ(pair.a.memory[30], 0x77);
  EXPECT_EQ(pair.a.memory[31], 0x78);
  EXPECT_TRUE(pair.b.quiet());
}

TEST(VerbsOperations, SeveralPiecesAreGatheredAndScattered) {
  const Settings settings;
  Pair pair;
  for (int i = 0; i < 100; ++i)
    pair.a.memory[static_cast<std::size_t>(i)] = static_cast<unsigned char>(i);
  ibv_sge to[] = {pair.b.piece(1000, 3), pair.b.piece(2000, 0), pair.b.piece(3000, 50)};
  ibv_recv_wr receive{};
  receive.sg_list = to;
  receive.num_sge = 3;
  ibv_recv_wr* bad_receive = nullptr;
  ASSERT_EQ(ibv_post_recv(pair.b.qp, &receive, &bad_receive), 0);
  ibv_sge from[] = {pair.a.piece(10, 2), pair.a.piece(50, 4)};
  ibv_send_wr send{};
  send.sg_list = from;
  send.num_sge = 2;
  send.opcode = IBV_WR_SEND;
  ASSERT_EQ(Endpoint::post(pair.a.qp, send), 0);
  ASSERT_EQ(pair.b.next().byte_len, 6U);
  EXPECT_EQ(pair.b.memory[1000], 10);
  EXPECT_EQ(pair.b.memory[1001], 11);
  EXPECT_EQ(pair.b.memory[1002], 50);
  EXPECT_EQ(pair.b.memory[3000], 51);
  EXPECT_EQ(pair.b.memory[3002], 53);
}

TEST(VerbsOperations, InlineDataNeedsNoMemoryAfterThePost) {
  const Settings settings("rdma0", "delays us=2000");
  EndpointOptions options;
  options.inline_bytes = 64;
  Pair pair(options);
  ASSERT_EQ(pair.b.receive(1, 0, 64), 0);
  pair.a.memory[0] = 9;
  ASSERT_EQ(pair.a.send(2, 0, 64, IBV_SEND_INLINE), 0);
  pair.a.memory[0] = 0;
  expect_wc(pair.b.next(), 1, IBV_WC_RECV);
  EXPECT_EQ(pair.b.memory[0], 9);
  EXPECT_EQ(pair.a.send(3, 0, 65, IBV_SEND_INLINE), EINVAL);
}

TEST(VerbsOperations, RegisteredDataAreReadAfterThePost) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  const Numbers to_a = a.numbers();
  a.connect(b.numbers());
  ASSERT_EQ(a.send(2, 0, 1), 0);  // It cannot leave before b is ready.
  a.memory[0] = 5;
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(b.receive(1, 0, 1), 0);
  ASSERT_EQ(b.to_ready_to_receive(to_a), 0);
  expect_wc(b.next(), 1, IBV_WC_RECV);
  EXPECT_EQ(b.memory[0], 5);
}

TEST(VerbsOperations, CompletionsAndDataKeepTheirOrder) {
  const Settings settings;
  Pair pair;
  constexpr std::uint32_t kRounds = 1000;
  std::uint64_t expected = 0;
  for (std::uint32_t i = 0; i < 32; ++i) ASSERT_EQ(pair.b.receive(i, 0, 0), 0);
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    std::memcpy(pair.a.memory.data(), &i, sizeof(i));
    ASSERT_EQ(pair.a.write(i, 0, sizeof(i), pair.to_b, 64, 0), 0);
    ASSERT_EQ(pair.a.write(i, 0, 0, pair.to_b, 0, IBV_SEND_SIGNALED, htonl(i)), 0);
    const ibv_wc wc = pair.b.next();
    ASSERT_EQ(wc.wr_id, expected % 32);
    ASSERT_EQ(ntohl(wc.imm_data), i);
    std::uint32_t seen = 0;
    std::memcpy(&seen, pair.b.memory.data() + 64, sizeof(seen));
    ASSERT_EQ(seen, i);
    ASSERT_EQ(pair.b.receive(expected++ % 32, 0, 0), 0);
    expect_wc(pair.a.next(), i, IBV_WC_RDMA_WRITE);
  }
}

TEST(VerbsOperations, LargeMessagesPassInBothDirectionsAtOnce) {
  const Settings settings;
  Pair pair;
  const Numbers to_a = pair.a.numbers();
  constexpr std::uint32_t kHalf = Endpoint::kMemory / 2;
  std::fill_n(pair.a.memory.begin(), kHalf, 1);
  std::fill_n(pair.b.memory.begin(), kHalf, 2);
  for (std::uint32_t i = 0; i < 16; ++i) {
    ASSERT_EQ(pair.a.write(i, 0, kHalf, pair.to_b, kHalf), 0);
    ASSERT_EQ(pair.b.read(i, kHalf, 1, to_a, 0), 0);
    ASSERT_EQ(pair.b.write(100 + i, 0, kHalf, to_a, kHalf), 0);
  }
  ASSERT_EQ(pair.a.read(99, 0, 1, pair.to_b, kHalf), 0);
  ASSERT_EQ(pair.b.read(99, 0, 1, to_a, kHalf), 0);
  for (int i = 0; i < 17; ++i) ASSERT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  for (int i = 0; i < 33; ++i) ASSERT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.memory.back(), 2);
  EXPECT_EQ(pair.b.memory.back(), 1);
}

TEST(VerbsNotification, ReportsOnlyWhatComesAfterTheRequest) {
  const Settings settings;
  Pair pair;
  ASSERT_EQ(pair.b.receive(1, 0, 0), 0);
  ASSERT_EQ(pair.b.receive(2, 0, 0), 0);
  ASSERT_EQ(pair.a.send(3, 0, 0), 0);
  expect_wc(pair.a.next(), 3, IBV_WC_SEND);  // The receive's completion came before.
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 0), 0);
  EXPECT_FALSE(readable(pair.b.channel->fd, 0));
  ASSERT_EQ(pair.a.send(4, 0, 0), 0);
  ASSERT_TRUE(readable(pair.b.channel->fd));
  ibv_cq* cq = nullptr;
  void* cookie = nullptr;
  ASSERT_EQ(library().get_cq_event(pair.b.channel, &cq, &cookie), 0);
  EXPECT_EQ(cq, pair.b.cq);
  EXPECT_EQ(cookie, &pair.b);
  library().ack_cq_events(cq, 1);
  expect_wc(pair.b.next(), 1, IBV_WC_RECV);
  expect_wc(pair.b.next(), 2, IBV_WC_RECV);
}

TEST(VerbsNotification, FiresOnceForEachRequest) {
  const Settings settings;
  Pair pair;
  ASSERT_EQ(fcntl(pair.b.channel->fd, F_SETFL, O_NONBLOCK), 0);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(pair.b.receive(i, 0, 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 0), 0);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(pair.a.send(i, 0, 0), 0);
  for (std::uint64_t i = 0; i < 3; ++i) expect_wc(pair.a.next(), i, IBV_WC_SEND);
  ibv_cq* cq = nullptr;
  void* cookie = nullptr;
  ASSERT_EQ(library().get_cq_event(pair.b.channel, &cq, &cookie), 0);
  library().ack_cq_events(cq, 1);
  EXPECT_EQ(library().get_cq_event(pair.b.channel, &cq, &cookie), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(VerbsNotification, SolicitedRequestIgnoresOtherCompletions) {
  const Settings settings;
  Pair pair;
  ASSERT_EQ(pair.b.receive(1, 0, 0), 0);
  ASSERT_EQ(pair.b.receive(2, 0, 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 1), 0);
  ASSERT_EQ(pair.a.send(3, 0, 0), 0);
  expect_wc(pair.a.next(), 3, IBV_WC_SEND);
  EXPECT_FALSE(readable(pair.b.channel->fd, 0));
  ASSERT_EQ(pair.a.send(4, 0, 0, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), 0);
  ASSERT_TRUE(readable(pair.b.channel->fd));
  ibv_cq* cq = nullptr;
  void* cookie = nullptr;
  ASSERT_EQ(library().get_cq_event(pair.b.channel, &cq, &cookie), 0);
  library().ack_cq_events(cq, 1);
}

TEST(VerbsQueues, UnsignaledRequestsKeepTheirSlots) {
  const Settings settings;
  EndpointOptions options;
  options.depth = 4;
  Pair pair(options);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(pair.a.write(i, 0, 1, pair.to_b, 0, 0), 0);
  ASSERT_EQ(pair.a.write(3, 0, 1, pair.to_b, 0), 0);
  EXPECT_EQ(pair.a.write(4, 0, 1, pair.to_b, 0), ENOMEM);
  expect_wc(pair.a.next(), 3, IBV_WC_RDMA_WRITE);  // Frees all four.
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(pair.a.write(i, 0, 1, pair.to_b, 0, 0), 0);
  EXPECT_EQ(pair.a.write(4, 0, 1, pair.to_b, 0), ENOMEM);
}

TEST(VerbsQueues, ReceivesBeyondTheDepthAreRefused) {
  const Settings settings;
  EndpointOptions options;
  options.depth = 2;
  Pair pair(options);
  EXPECT_EQ(pair.b.receive(0, 0, 0), 0);
  EXPECT_EQ(pair.b.receive(1, 0, 0), 0);
  EXPECT_EQ(pair.b.receive(2, 0, 0), ENOMEM);
}

TEST(VerbsQueues, OverrunCqReportsAnEvent) {
  const Settings settings;
  EndpointOptions options;
  options.completions = 2;
  Pair pair(options);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(pair.a.write(i, 0, 1, pair.to_b, 0), 0);
  EXPECT_EQ(pair.a.event(), IBV_EVENT_CQ_ERR);
  ibv_wc wc{};
  EXPECT_LT(ibv_poll_cq(pair.a.cq, 1, &wc), 0);
}

TEST(VerbsQueues, ReadsBeyondTheirLimitAllComplete) {
  const Settings settings;
  EndpointOptions options;
  options.reads = 1;
  Pair pair(options);
  pair.b.memory[3] = 4;
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(pair.a.read(i, i, 1, pair.to_b, 3), 0);
  for (std::uint64_t i = 0; i < 20; ++i) expect_wc(pair.a.next(), i, IBV_WC_RDMA_READ);
  EXPECT_EQ(pair.a.memory[19], 4);
}

TEST(VerbsCounters, CountPostsBytesAndDoorbells) {
  const Settings settings;
  Pair pair;
  const verbs_double_counts before = library().counts();
  ASSERT_EQ(pair.b.receive(1, 0, 0), 0);
  ASSERT_EQ(pair.a.write(1, 0, 100, pair.to_b, 0, 0), 0);
  ASSERT_EQ(pair.a.write(2, 0, 20, pair.to_b, 0, IBV_SEND_SIGNALED, 0), 0);
  pair.a.next();
  pair.b.next();
  const verbs_double_counts after = library().counts();
  EXPECT_EQ(after.posted_write - before.posted_write, 1U);
  EXPECT_EQ(after.posted_write_imm - before.posted_write_imm, 1U);
  EXPECT_EQ(after.posted_recv - before.posted_recv, 1U);
  EXPECT_EQ(after.posted_signaled - before.posted_signaled, 1U);
  EXPECT_EQ(after.post_calls - before.post_calls, 2U);
  EXPECT_EQ(after.posted_bytes - before.posted_bytes, 120U);
  EXPECT_EQ(after.gathered_bytes - before.gathered_bytes, 120U);
  EXPECT_EQ(after.placed_bytes - before.placed_bytes, 120U);
  EXPECT_EQ(after.completions - before.completions, 2U);
}

}  // namespace
}  // namespace gpurun::verbs_double
