// BulkLanes: the thread that has a small copy's bytes sends as much as the connection takes at
// once, and the sender thread sends the rest. In each case frames arrive whole and in order, and
// slots are returned.
#include "server/bulk/bulk_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/limits.h"
#include "tests/unit/server/bulk/taking_connection.h"

namespace gpurun::server {
namespace {

using protocol::FrameKind;

constexpr std::size_t kSmall = std::size_t{64} << 10;

constexpr std::size_t kFrame = protocol::kChunkHeadBytes + kSmall;

class BulkLanesTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  explicit BulkLanesTest(std::size_t at_once = GetParam())
      : taking_(at_once), lanes_({&taking_}, false, false) {
    BulkLanes::Listener listener;
    listener.user = nullptr;
    listener.changed = listener.time = [](void*) {};
    listener.failed = [](void*, const Status&) {};
    EXPECT_TRUE(lanes_.start(listener).ok());
  }
  ~BulkLanesTest() override { lanes_.stop(); }

  // A copy out of one chunk that the device has written. Each byte is the transfer's number.
  void copy_out(std::uint64_t transfer, std::size_t bytes = kSmall) {
    ASSERT_EQ(lanes_.out().open(transfer, transfer, bytes), 0);
    const BulkOut::Chunk chunk = lanes_.out().next(transfer);
    ASSERT_NE(chunk.bytes, nullptr);
    std::fill_n(chunk.bytes, chunk.size, static_cast<std::byte>(transfer));
    lanes_.out().copied(transfer, chunk, 0);
    lanes_.out().end_call(transfer, transfer, bytes, 0);
  }
  // Expects transfers 1 to `count` in this order, each in one frame of kSmall bytes.
  void expect_sent(std::size_t count) {
    const Bytes sent = taking_.sent(count * kFrame);
    ASSERT_EQ(sent.size(), count * kFrame);
    for (std::size_t at = 0; at < sent.size(); at += kFrame) {
      const ByteView frame = ByteView(sent).subspan(at, kFrame);
      const auto head = protocol::parse_frame_header(frame);
      ASSERT_TRUE(head.ok());
      const auto bulk = protocol::parse_bulk_header(
          head->kind, frame.subspan(protocol::kFrameHeaderBytes), kSmall);
      ASSERT_TRUE(bulk.ok());
      EXPECT_EQ(bulk->transfer, at / kFrame + 1);
      const ByteView bytes = frame.subspan(protocol::kChunkHeadBytes);
      EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [&bulk](std::byte each) {
        return each == static_cast<std::byte>(bulk->transfer);
      }));
    }
  }
  std::size_t by_this_thread() { return taking_.sent_by(std::this_thread::get_id()); }

  TakingConnection taking_;
  BulkLanes lanes_;
};

// The bytes that the connection takes at once. 0: none. Others cut a frame in two parts, within the
// head or behind it.
INSTANTIATE_TEST_SUITE_P(TakenAtOnce, BulkLanesTest,
                         ::testing::Values(0, 10, 60, 40'000, kFrame - 1, kFrame));

TEST_P(BulkLanesTest, FramesArriveWholeAndInOrder) {
  const std::size_t free = lanes_.staging_out().free_slots();
  for (std::uint64_t transfer = 1; transfer <= 6; ++transfer) copy_out(transfer);
  expect_sent(6);
  lanes_.stop();  // The sender has returned its last slot by then.
  EXPECT_EQ(lanes_.staging_out().free_slots(), free);
  EXPECT_EQ(lanes_.out().remembered(), 0U);
}

TEST_P(BulkLanesTest, CallingThreadSendsAcceptedBytesOfSmallCopy) {
  copy_out(1);
  expect_sent(1);
  EXPECT_EQ(by_this_thread(), std::min(GetParam(), kFrame));
}

TEST_P(BulkLanesTest, SenderThreadSendsLargerCopies) {
  copy_out(1, 2 * kSmall);
  EXPECT_EQ(taking_.sent(kFrame + kSmall).size(), kFrame + kSmall);
  EXPECT_EQ(by_this_thread(), 0U);
}

// A thread with consecutive copies keeps their bytes together.
class GatheringTest : public BulkLanesTest {
 protected:
  GatheringTest() : BulkLanesTest(std::size_t{1} << 30) {}
  std::size_t sent() { return taking_.sent_so_far().size(); }
};

TEST_F(GatheringTest, SendsGatheredCopiesInOneSend) {
  {
    const BulkLanes::Gathering gathering(&lanes_);
    for (std::uint64_t transfer = 1; transfer <= 5; ++transfer) copy_out(transfer);
    EXPECT_EQ(sent(), 0U);
  }
  EXPECT_EQ(taking_.sends(), 1U);
  expect_sent(5);
  copy_out(6);
  EXPECT_EQ(sent(), 6 * kFrame) << "it is over";
  EXPECT_EQ(by_this_thread(), 6 * kFrame);
}

TEST_F(GatheringTest, SendsWhenByteOrChunkLimitIsReached) {
  constexpr std::size_t kEnough = protocol::ChunksToSend::kBytesMax / kSmall;
  const BulkLanes::Gathering gathering(&lanes_);
  for (std::uint64_t transfer = 1; transfer < kEnough; ++transfer) copy_out(transfer);
  EXPECT_EQ(sent(), 0U);
  copy_out(kEnough);
  EXPECT_EQ(taking_.sends(), 1U);
  expect_sent(kEnough);
  const std::size_t before = sent();
  for (std::uint64_t i = 1; i < protocol::ChunksToSend::kChunksMax; ++i) copy_out(kEnough + i, 4);
  EXPECT_EQ(sent(), before);
  copy_out(2 * kEnough + protocol::ChunksToSend::kChunksMax, 4);
  EXPECT_EQ(taking_.sends(), 2U);
  EXPECT_EQ(sent(), before + protocol::ChunksToSend::kChunksMax * (protocol::kChunkHeadBytes + 4));
}

// The sender sends what is not kept, behind what was kept.
TEST_F(GatheringTest, SendsLargeChunksAndFailuresAfterGatheredCopies) {
  constexpr std::size_t kLarge = limits::kBulkChunkBytes;
  std::uint64_t transfer = 0;
  std::size_t all = 0;
  for (int times = 0; times < 20; ++times) {  // Repeated until the sender has gone to sleep.
    const BulkLanes::Gathering gathering(&lanes_);
    copy_out(++transfer, 4096);
    if (times % 2 == 0) {
      copy_out(++transfer, kLarge);
    } else {
      ++transfer;
      lanes_.out().end_call(transfer, transfer, 4096, 700);  // The copy has failed, and a frame
                                                             // reports it.
    }
    lanes_.send_gathered();
    all += 2 * protocol::kChunkHeadBytes + 4096 + (times % 2 == 0 ? kLarge : 0);
    ASSERT_EQ(taking_.sent(all).size(), all);
  }
}

TEST_F(GatheringTest, SendGatheredFlushesOnce) {
  const BulkLanes::Gathering gathering(&lanes_);
  copy_out(1);
  copy_out(2);
  lanes_.send_gathered();
  EXPECT_EQ(sent(), 2 * kFrame);
  EXPECT_EQ(taking_.sends(), 1U);
  lanes_.send_gathered();
  EXPECT_EQ(taking_.sends(), 1U);
}

class GoneConnection final : public TakingConnection {
 public:
  GoneConnection() : TakingConnection(0) {}
  Status send(std::span<const ByteView>, Deadline) override { return gone(); }
  Result<std::size_t> send_some(std::span<const ByteView>) override { return gone(); }

 private:
  static Status gone() { return Status(Code::kPeerGone, "gone"); }
};

// The sender reports it once, and has nothing more to do.
TEST(BulkLanesFailure, ReportsLostConnectionOnce) {
  GoneConnection connection;
  BulkLanes lanes({&connection}, false, false);
  std::atomic<int> told{0};
  BulkLanes::Listener listener;
  listener.user = &told;
  listener.changed = listener.time = [](void*) {};
  listener.failed = [](void* user, const Status&) { ++*static_cast<std::atomic<int>*>(user); };
  ASSERT_TRUE(lanes.start(listener).ok());
  for (std::uint64_t transfer = 1; transfer <= 3; ++transfer) {
    ASSERT_EQ(lanes.out().open(transfer, transfer, kSmall), 0);
    lanes.out().copied(transfer, lanes.out().next(transfer), 0);
  }
  const Deadline deadline = Deadline::in(std::chrono::seconds(20));
  while (told == 0 && !deadline.passed()) std::this_thread::yield();
  EXPECT_EQ(told, 1);
  lanes.stop();
}

// Connections that join the first one.
class BulkLanesExtraConnectionTest : public BulkLanesTest {
 protected:
  BulkLanesExtraConnectionTest() : BulkLanesTest(kFrame) {}
  static Status say_nothing(transport::Connection&) { return {}; }
};

TEST_F(BulkLanesExtraConnectionTest, AcceptsConnectionsUpToSessionLimit) {
  std::size_t added = 0;
  while (added < 2 * limits::kConnectionsMax &&
         lanes_.add(std::make_unique<TakingConnection>(kFrame), say_nothing)) {
    ++added;
  }
  EXPECT_EQ(added + 2, limits::kConnectionsMax);  // Plus the log and the first bulk connection.
}

TEST_F(BulkLanesExtraConnectionTest, FailedConnectionDoesNotCountTowardLimit) {
  const auto fails = [](transport::Connection&) { return Status(Code::kPeerGone, "on purpose"); };
  for (std::size_t times = 0; times < 2 * limits::kConnectionsMax; ++times) {
    EXPECT_FALSE(lanes_.add(std::make_unique<TakingConnection>(kFrame), fails));
  }
  EXPECT_TRUE(lanes_.add(std::make_unique<TakingConnection>(kFrame), say_nothing));
}

TEST_F(BulkLanesExtraConnectionTest, UnspreadCopiesUseFirstConnection) {
  auto other = std::make_unique<TakingConnection>(kFrame);
  TakingConnection& joined = *other;
  ASSERT_TRUE(lanes_.add(std::move(other), say_nothing));
  for (std::uint64_t transfer = 1; transfer <= 20; ++transfer) copy_out(transfer);
  expect_sent(20);
  EXPECT_TRUE(joined.sent(0).empty());
}

TEST_F(BulkLanesExtraConnectionTest, ClientWithoutSpreadingUsesOneConnection) {
  ASSERT_TRUE(lanes_.add(std::make_unique<TakingConnection>(kFrame), say_nothing));
  EXPECT_EQ(lanes_.lanes_for(2), 1U);
}

class BulkLanesSpreadTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kChunk = limits::kBulkChunkBytes;
  static constexpr std::size_t kChunkFrame = protocol::kChunkHeadBytes + kChunk;

  BulkLanesSpreadTest() {
    BulkLanes::Listener listener;
    listener.changed = listener.time = [](void*) {};
    listener.failed = [](void*, const Status&) {};
    EXPECT_TRUE(lanes_.start(listener).ok());
    auto other = std::make_unique<TakingConnection>(0);
    joined_ = other.get();
    EXPECT_TRUE(lanes_.add(std::move(other), [](transport::Connection&) { return Status(); }));
  }
  ~BulkLanesSpreadTest() override {
    first_.let_go(1000);
    lanes_.stop();
  }

  void copy_out(std::uint64_t transfer, std::uint64_t bytes, unsigned lanes) {
    ASSERT_EQ(lanes_.out().open(transfer, transfer, bytes, lanes), 0);
    for (std::uint64_t at = 0; at < bytes; at += kChunk) {
      const BulkOut::Chunk chunk = lanes_.out().next(transfer);
      ASSERT_NE(chunk.bytes, nullptr);
      lanes_.out().copied(transfer, chunk, 0);
    }
    lanes_.out().end_call(transfer, transfer, bytes, 0);
  }
  // The transfer and the watermark of each frame. All frames are `bytes` long.
  using Told = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  static Told told(const Bytes& sent, std::size_t bytes) {
    Told result;
    for (std::size_t at = 0; at + bytes <= sent.size(); at += bytes) {
      protocol::BulkHeader header;
      std::memcpy(&header, sent.data() + at + protocol::kFrameHeaderBytes, sizeof header);
      result.emplace_back(header.transfer, header.watermark);
    }
    return result;
  }

  StandingConnection first_;
  BulkLanes lanes_{{&first_}, false, true};
  TakingConnection* joined_ = nullptr;
};

TEST_F(BulkLanesSpreadTest, LimitsSpreadToOpenConnections) {
  EXPECT_EQ(lanes_.lanes_for(0), 1U);
  EXPECT_EQ(lanes_.lanes_for(1), 1U);
  EXPECT_EQ(lanes_.lanes_for(2), 2U);
  EXPECT_EQ(lanes_.lanes_for(~std::uint64_t{0}), 2U);
}

// While one connection blocks, the other takes what may go over it, and no more. Each keeps its
// order, and each frame names the transfers before it.
TEST_F(BulkLanesSpreadTest, FreeConnectionTakesChunksOfBlockedConnection) {
  ASSERT_EQ(lanes_.lanes_for(2), 2U);
  copy_out(1, kChunk, 1);
  first_.await();
  copy_out(2, 2 * kChunk, 2);
  copy_out(3, 2 * kChunk, 2);
  const Told spread = told(joined_->sent(4 * kChunkFrame), kChunkFrame);
  EXPECT_EQ(spread, (Told{{2, 1}, {2, 2}, {3, 2}, {3, 3}}));
  copy_out(4, kChunk, 1);
  copy_out(5, 2 * kChunk, 2);
  EXPECT_EQ(joined_->sent_so_far().size(), 4 * kChunkFrame) << "the fourth goes before it";
  first_.let_go(1);
  // It waits with the fourth.
  EXPECT_EQ(told(joined_->sent(6 * kChunkFrame), kChunkFrame)[5], (std::pair{5UL, 5UL}));
  first_.let_go(1);
  EXPECT_EQ(told(first_.sent(2 * kChunkFrame), kChunkFrame)[1], (std::pair{4UL, 4UL}));
}

TEST_F(BulkLanesExtraConnectionTest, RefusesConnectionAfterStop) {
  lanes_.stop();
  EXPECT_FALSE(lanes_.add(std::make_unique<TakingConnection>(kFrame), say_nothing));
}

}  // namespace
}  // namespace gpurun::server
