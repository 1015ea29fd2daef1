// Failing devices: each fault of the verbs double in the middle of a copy over RDMA. The bytes
// arrive right, over the socket where the queue pair is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "tests/support/rdma_pair.h"

namespace gpurun::transport::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kWriting = "rdma0";
constexpr const char* kSending = "rdma0 profile=send_only";

// Copies over a pair that meets `fault`. Returns how often the server left RDMA.
std::uint64_t leaves_behind(const char* devices, const std::string& fault) {
  RdmaPair pair(devices);
  VerbsDouble::inject(fault);
  EXPECT_TRUE(copies(pair, pattern(4 << 20, 1))) << devices << ": " << fault;
  EXPECT_EQ(pair.client->changes().left, pair.server->changes().left) << fault;
  return pair.server->changes().left;
}

TEST(RdmaFaults, QueuePairThatBreaksInMidCopyIsLeft) {
  for (const char* devices : {kWriting, kSending}) {
    for (const unsigned posts : {1U, 2U, 17U, 40U}) {
      EXPECT_EQ(leaves_behind(devices, "breaks_qp posts=" + std::to_string(posts)), 1U) << posts;
    }
    EXPECT_EQ(leaves_behind(devices, "breaks_qp bytes=1500000"), 1U);
  }
}

// The fabric is lost without a word, and the session goes on within two seconds. A machine that is
// busy elsewhere may spoil an attempt, but not each of them.
TEST(RdmaFaults, LostFabricShowsWithinTwoSeconds) {
  constexpr unsigned kAttempts = 6;
  for (const char* fault : {"cuts_qp posts=20", "port_down port=1 posts=20"}) {
    auto shortest = steady_clock::duration::max();
    for (unsigned i = 0; i < kAttempts && shortest >= milliseconds(2000); ++i) {
      const auto before = steady_clock::now();
      EXPECT_EQ(leaves_behind(kWriting, fault), 1U) << fault;
      shortest = std::min(shortest, steady_clock::now() - before);
    }
    EXPECT_LT(shortest, milliseconds(2000)) << fault;
  }
}

// Such a device wakes no thread. A sender that waits for room must notice it.
TEST(RdmaFaults, DeviceThatReportsNothingIsLeft) {
  EXPECT_EQ(leaves_behind(kWriting, "stops_qp posts=20"), 1U);
}

// The lost request has no report of its own, and its sender waits in receive().
TEST(RdmaFaults, AnswerToARequestThatADeviceLosesSilentlyComes) {
  RdmaPair pair;
  VerbsDouble::inject("stops_qp posts=1");
  ASSERT_TRUE(send_bytes(*pair.client, pattern(4, 1)).ok());
  auto answering = std::async(std::launch::async, [&] {
    const Bytes asked = receive_bytes(*pair.server, 4);
    return send_bytes(*pair.server, asked).ok();
  });
  EXPECT_EQ(receive_bytes(*pair.client, 4), pattern(4, 1));
  EXPECT_TRUE(answering.get());
  EXPECT_EQ(pair.client->changes().left, 1U);
}

TEST(RdmaFaults, RequestThatFailsIsLeft) {
  for (const std::string kind : {"write_imm", "send_imm"}) {
    const char* const devices = kind == "write_imm" ? kWriting : kSending;
    for (const unsigned at : {1U, 5U, 31U}) {
      const std::string where = " at=" + std::to_string(at) + " kind=" + kind;
      EXPECT_EQ(leaves_behind(devices, "post_fails error=EACCES" + where), 1U) << where;
      EXPECT_EQ(leaves_behind(devices, "post_fails error=ENOMEM" + where), 1U) << where;
      EXPECT_EQ(leaves_behind(devices, "completes_with status=10" + where), 1U) << where;
    }
  }
}

TEST(RdmaFaults, ReceiveThatFailsIsLeft) {
  for (const char* devices : {kWriting, kSending}) {
    EXPECT_EQ(leaves_behind(devices, "post_fails at=9 kind=recv error=ENOMEM"), 1U);
  }
}

// The next report also stands for those before it.
TEST(RdmaFaults, LostReportOfRequestChangesNothing) {
  for (const std::string kind : {"write_imm", "send_imm"}) {
    const char* const devices = kind == "write_imm" ? kWriting : kSending;
    for (const unsigned at : {1U, 15U, 16U, 32U}) {
      const std::string fault = "loses_completion at=" + std::to_string(at) + " kind=" + kind;
      EXPECT_EQ(leaves_behind(devices, fault), 0U) << fault;
    }
  }
}

// A device writes bytes when it likes before their completion. The double does so at the next
// completion, so bytes that are read earlier are wrong in every test here. It may do so earlier.
TEST(RdmaFaults, PlacementAtCompletionIsEnough) {
  RdmaPair pair(kWriting);
  EXPECT_TRUE(copies(pair, pattern(1 << 20, 2)));
}

// A session that goes on for long behind a failure has nothing of RDMA any more.
TEST(RdmaFaults, SessionGoesOnOverTheSocket) {
  RdmaPair pair;
  VerbsDouble::inject("breaks_qp posts=3");
  EXPECT_TRUE(copies(pair, pattern(1 << 20, 3)));
  const verbs_double_counts before = VerbsDouble::counts();
  for (unsigned i = 0; i < 5; ++i) EXPECT_TRUE(copies(pair, pattern(1 << 20, i)));
  EXPECT_EQ(VerbsDouble::counts().post_calls, before.post_calls);
}

// An owner that asks for the failed carrier comes back to the socket.
TEST(RdmaFaults, CopiesAreRightBehindAnEntryOfAFailedCarrier) {
  RdmaPair pair;
  VerbsDouble::inject("breaks_qp posts=3");
  EXPECT_TRUE(copies(pair, pattern(1 << 20, 3)));
  ASSERT_TRUE(pair.client->enter().ok());
  ASSERT_TRUE(pair.server->enter().ok());
  EXPECT_TRUE(copies(pair, pattern(1 << 20, 4)));
  EXPECT_TRUE(copies(pair, pattern(1 << 20, 5)));
}

}  // namespace
}  // namespace gpurun::transport::test
