// Connections over RDMA: how many requests a message costs, that each device's limits are kept, and
// that both ends sleep and end without a loss.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <ctime>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/rdma_pair.h"

namespace gpurun::transport::test {
namespace {

std::uint64_t requests(const verbs_double_counts& counts) {
  return counts.posted_write_imm + counts.posted_send_imm + counts.posted_write +
         counts.posted_send + counts.posted_read;
}

// A frame of a log has many parts, and is one request. Credits come on top, one for a quarter of
// the receives at most.
TEST(RdmaConnection, MessageIsOneRequest) {
  RdmaPair pair;
  constexpr unsigned kFrames = 2000;
  const Bytes whole = pattern(300, 1);
  const ByteView view(whole);
  const std::vector<ByteView> parts = {view.first(16), view.subspan(16, 100), view.subspan(116)};
  auto taking = std::async(std::launch::async, [&] {
    bool right = true;
    for (unsigned i = 0; i < kFrames; ++i)
      right = receive_bytes(*pair.server, 300) == whole && right;
    return right;
  });
  const verbs_double_counts before = VerbsDouble::counts();
  for (unsigned i = 0; i < kFrames; ++i) ASSERT_TRUE(pair.client->send(parts, soon()).ok());
  ASSERT_TRUE(taking.get());
  const verbs_double_counts after = VerbsDouble::counts();
  const std::uint64_t posted = requests(after) - requests(before);
  EXPECT_GE(posted, kFrames);
  EXPECT_LE(posted, kFrames + 16);
  EXPECT_EQ(after.post_calls - before.post_calls, posted);
  EXPECT_EQ(after.not_ready, before.not_ready) << "a message waited for a receive";
}

// The watcher sleeps through round trips of another thread, because the watch is paused before each
// request goes out. An event of a reply that was taken wakes it no more.
TEST(RdmaConnection, RoundTripsWakeNoWatcher) {
  RdmaPair pair;
  auto watch = pair.client->watch();
  ASSERT_TRUE(watch.ok()) << watch.status().to_string();
  constexpr unsigned kRounds = 300;
  const Bytes call = pattern(60, 1);
  auto answering = std::async(std::launch::async, [&] {
    bool sent = true;
    for (unsigned i = 0; i < kRounds && sent; ++i) {
      sent = send_bytes(*pair.server, receive_bytes(*pair.server, 60)).ok();
    }
    return sent;
  });
  std::atomic<bool> over{false};
  auto watching = std::async(std::launch::async, [&] {
    while (!over) static_cast<void>((*watch)->wait(Deadline::in(std::chrono::milliseconds(50))));
    rusage used = {};
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nvcsw;  // How often this thread has slept.
  });
  for (unsigned i = 0; i < kRounds; ++i) {
    transport::WatchPause pause(watch->get());
    const ByteView part = call;
    ASSERT_TRUE(pair.client->send_paused({&part, 1}, soon(), pause).ok());
    ASSERT_EQ(receive_bytes(*pair.client, 60), call);
  }
  ASSERT_TRUE(answering.get());
  over = true;
  EXPECT_LT(watching.get(), kRounds / 3);
}

// A round trip as a session makes it: the watcher sleeps between two of them. Each end asks for one
// event and reads one for each message that comes, and few requests report.
TEST(RdmaConnection, RoundTripCostsTwoRequestsAndTwoEvents) {
  RdmaPair pair;
  auto watch = pair.client->watch();
  ASSERT_TRUE(watch.ok()) << watch.status().to_string();
  constexpr unsigned kRounds = 300;
  const Bytes call = pattern(60, 1);
  auto answering = std::async(std::launch::async, [&] {
    bool sent = true;
    for (unsigned i = 0; i < kRounds && sent; ++i) {
      sent = send_bytes(*pair.server, receive_bytes(*pair.server, 60)).ok();
    }
    return sent;
  });
  const verbs_double_counts before = VerbsDouble::counts();
  (*watch)->pause();
  for (unsigned i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(send_bytes(*pair.client, call).ok());
    ASSERT_EQ(receive_bytes(*pair.client, 60), call);
    (*watch)->resume();
    (*watch)->pause();
  }
  ASSERT_TRUE(answering.get());
  const verbs_double_counts after = VerbsDouble::counts();
  constexpr std::uint64_t kMessages = 2 * kRounds;
  constexpr std::uint64_t kCredits = 16;
  EXPECT_LE(requests(after) - requests(before), kMessages + kCredits);
  EXPECT_LE(after.posted_signaled - before.posted_signaled, kMessages / 16 + 2);
  EXPECT_LE(after.notify_requests - before.notify_requests, kMessages + kCredits);
  EXPECT_LE(after.event_reads - before.event_reads, kMessages + kCredits);
  EXPECT_LE(after.events - before.events, kMessages + kCredits);
}

TEST(RdmaConnection, ChunkOf64KibWithItsHeadIsOneRequest) {
  RdmaPair pair;
  const Bytes chunk = pattern((64 << 10) + 64, 1);
  const verbs_double_counts before = VerbsDouble::counts();
  ASSERT_TRUE(send_bytes(*pair.client, chunk).ok());
  EXPECT_EQ(requests(VerbsDouble::counts()) - requests(before), 1U);
  EXPECT_EQ(receive_bytes(*pair.server, chunk.size()), chunk);
}

TEST(RdmaConnection, SmallFramesAreInlineWhereTheDeviceHasIt) {
  for (const bool has : {true, false}) {
    RdmaPair pair(has ? "rdma0 inline=256" : "rdma0 inline=0");
    const verbs_double_counts before = VerbsDouble::counts();
    ASSERT_TRUE(send_bytes(*pair.client, pattern(200, 1)).ok());
    EXPECT_EQ(receive_bytes(*pair.server, 200), pattern(200, 1));
    EXPECT_EQ(VerbsDouble::counts().inline_bytes - before.inline_bytes, has ? 200U : 0U);
  }
}

// The mode follows from what the device does, and not from its name.
TEST(RdmaConnection, DevicesThatOnlySendAreSentTo) {
  for (const char* devices :
       {"rdma0", "rdma0 profile=pvrdma", "rdma0 profile=send_only", "rdma0 immediate=plain"}) {
    RdmaPair pair(devices);
    const verbs_double_counts before = VerbsDouble::counts();
    EXPECT_TRUE(copies(pair, pattern(3 << 20, 2))) << devices;
    const verbs_double_counts after = VerbsDouble::counts();
    const bool writes = std::string(devices) == "rdma0";
    EXPECT_EQ(after.posted_send_imm - before.posted_send_imm == 0, writes) << devices;
    EXPECT_EQ(after.posted_write_imm - before.posted_write_imm == 0, !writes) << devices;
    EXPECT_EQ(pair.server->changes().left, 0U) << devices;
    EXPECT_EQ(after.not_ready, before.not_ready) << devices;
  }
}

TEST(RdmaConnection, LimitsOfTheDeviceAreKept) {
  for (const char* devices :
       {"rdma0 message=4096", "rdma0 message=100", "rdma0 sge=1 inline=0", "rdma0 wr=256 cqe=256",
        "ib0 link=infiniband", "ib0 link=infiniband grh=1", "rdma0 mtu=256", "rdma0 ports=2"}) {
    RdmaPair pair(devices);
    EXPECT_TRUE(copies(pair, pattern(400'000, 3))) << devices;
    EXPECT_EQ(pair.server->changes().left, 0U) << devices;
  }
}

// A queue pair drops packets of the other form, so the end without the need follows.
TEST(RdmaConnection, PortThatNeedsAGlobalHeaderReachesOneThatDoesNot) {
  const std::string devices =
      "ib0 link=infiniband lid=4 gids=ib/fe80::4; ib1 link=infiniband lid=5 gids=ib/fe80::5 grh=1";
  for (const unsigned rail : {1U, 2U}) {
    RdmaPair pair(devices, {rail, 3}, {3 - rail, 3});
    EXPECT_TRUE(copies(pair, pattern(400'000, 3))) << rail;
    EXPECT_EQ(pair.server->changes().left, 0U) << rail;
  }
}

// More bytes than a ring, from both ends at once, with pieces that cross the ring's end.
TEST(RdmaConnection, RingsGoRoundInBothDirections) {
  RdmaPair pair;
  const Bytes whole = pattern(5'000'003, 4);
  const auto echo = [&](Connection& end) {
    auto sender = std::async(std::launch::async, [&] {
      bool sent = true;
      for (std::size_t at = 0; at < whole.size(); at += 77'777) {
        const ByteView rest = ByteView(whole).subspan(at);
        sent = sent && send_bytes(end, rest.first(std::min<std::size_t>(rest.size(), 77'777))).ok();
      }
      return sent;
    });
    const bool right = receive_bytes(end, whole.size()) == whole;
    return sender.get() && right;
  };
  auto server = std::async(std::launch::async, [&] { return echo(*pair.server); });
  EXPECT_TRUE(echo(*pair.client));
  EXPECT_TRUE(server.get());
  EXPECT_EQ(pair.server->changes().left + pair.client->changes().left, 0U);
}

// A reader that is late holds its sender up, and loses nothing. No message waits in the fabric.
TEST(RdmaConnection, LateReaderHoldsSenderUp) {
  RdmaPair pair;
  const verbs_double_counts before = VerbsDouble::counts();
  std::size_t sent = 0;
  const Bytes one = pattern(1, 5);
  const ByteView view(one);
  Status status;
  while (
      (status = pair.client->send({&view, 1}, Deadline::in(std::chrono::milliseconds(20)))).ok()) {
    ASSERT_LT(++sent, 100'000U);
  }
  EXPECT_EQ(status.code(), Code::kDeadline);
  EXPECT_GT(sent, 200U);
  EXPECT_EQ(receive_bytes(*pair.server, sent).size(), sent);
  EXPECT_TRUE(copies(pair, pattern(100'000, 6)));
  EXPECT_EQ(VerbsDouble::counts().not_ready, before.not_ready);
}

TEST(RdmaConnection, BytesBeforeTheEndArrive) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{900'000}}) {
    RdmaPair pair;
    VerbsDouble::inject("delays us=3000");
    ASSERT_TRUE(send_bytes(*pair.server, pattern(bytes, 7)).ok());
    pair.server.reset();
    EXPECT_TRUE(receive_bytes(*pair.client, bytes) == pattern(bytes, 7));
    Bytes more(1);
    EXPECT_EQ(pair.client->receive(more, 1, soon()).status().code(), Code::kPeerGone);
  }
}

// Only an event of the completion channel wakes the receiver: the socket has nothing.
TEST(RdmaConnection, SleepingReceiverUsesNoProcessor) {
  RdmaPair pair;
  timespec before = {};
  timespec after = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  auto waiting = std::async(std::launch::async, [&] { return receive_bytes(*pair.client, 4); });
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used = static_cast<double>(after.tv_sec - before.tv_sec) +
                      static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9;
  EXPECT_LT(used, 0.1);
  const verbs_double_counts counts = VerbsDouble::counts();
  ASSERT_TRUE(send_bytes(*pair.server, pattern(4, 8)).ok());
  EXPECT_EQ(waiting.get(), pattern(4, 8));
  EXPECT_GT(VerbsDouble::counts().events, counts.events);
}

// Copies until both ends have changed so often.
template <typename Count>
void copy_until(RdmaPair& pair, Count count, std::uint64_t wanted) {
  for (unsigned i = 0; count(*pair.server) < wanted || count(*pair.client) < wanted; ++i) {
    ASSERT_LT(i, 20U);
    ASSERT_TRUE(copies(pair, pattern(700'000, i)));
  }
}

TEST(RdmaConnection, EntersAndLeavesWhileBytesFlow) {
  RdmaPair pair;
  for (unsigned round = 1; round <= 4; ++round) {
    ASSERT_TRUE((round % 2 == 0 ? pair.client : pair.server)->leave().ok());
    copy_until(
        pair, [](auto& end) { return end.changes().left; }, round);
    ASSERT_TRUE((round % 2 == 0 ? pair.server : pair.client)->enter().ok());
    copy_until(
        pair, [](auto& end) { return end.changes().entered; }, round);
  }
  const verbs_double_counts before = VerbsDouble::counts();
  EXPECT_TRUE(copies(pair, pattern(700'000, 11)));
  EXPECT_GT(VerbsDouble::counts().posted_write_imm, before.posted_write_imm);
}

}  // namespace
}  // namespace gpurun::transport::test
