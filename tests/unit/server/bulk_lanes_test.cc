// Which thread sends a small copy's bytes: who has them, as far as the connection takes them at
// once; its sender goes on. Whoever sends, frames arrive whole, in their order, and slots come
// back.
#include "server/bulk/bulk_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "protocol/limits.h"
#include "transport/transport.h"

namespace gpurun::server {
namespace {

using protocol::FrameKind;

constexpr std::size_t kSmall = std::size_t{64} << 10;

// Keeps what is sent, and by which thread the first byte of each frame was.
class Taking : public transport::Connection {
 public:
  // `at_once`: bytes that send_some() takes at most.
  explicit Taking(std::size_t at_once) : at_once_(at_once) {}

  const transport::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }
  Status send(std::span<const ByteView> parts, Deadline /*deadline*/) override {
    take(parts, std::size_t{1} << 30);
    return {};
  }
  Result<std::size_t> send_some(std::span<const ByteView> parts) override {
    return take(parts, at_once_);
  }
  Result<std::size_t> receive(MutableBytes, std::size_t, Deadline) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_; });
    return Status(Code::kPeerGone, "over");
  }
  void shut_down() noexcept override {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  // Once so many bytes have been sent.
  Bytes sent(std::size_t bytes) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(30), [&] { return sent_.size() >= bytes; }));
    return sent_;
  }
  std::size_t sent_by(std::thread::id thread) {
    const std::lock_guard lock(mutex_);
    return sent_by_[thread];
  }

 private:
  std::size_t take(std::span<const ByteView> parts, std::size_t most) {
    const std::lock_guard lock(mutex_);
    std::size_t taken = 0;
    for (const ByteView part : parts) {
      const ByteView some = part.first(std::min(part.size(), most - taken));
      sent_.insert(sent_.end(), some.begin(), some.end());
      taken += some.size();
    }
    sent_by_[std::this_thread::get_id()] += taken;
    changed_.notify_all();
    return taken;
  }

  const std::size_t at_once_;
  transport::Capabilities capabilities_;
  std::string description_ = "taking";
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  Bytes sent_;
  std::map<std::thread::id, std::size_t> sent_by_;
};

constexpr std::size_t kFrame = protocol::kChunkHeadBytes + kSmall;

class BulkLanesTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  explicit BulkLanesTest(std::size_t at_once = GetParam())
      : taking_(at_once), lanes_({&taking_}, false) {
    BulkLanes::Listener listener;
    listener.user = nullptr;
    listener.changed = listener.time = [](void*) {};
    listener.failed = [](void*, const Status&) {};
    EXPECT_TRUE(lanes_.start(listener).ok());
  }
  ~BulkLanesTest() override { lanes_.stop(); }

  // A copy out of one chunk that the device has written: the transfer's number in each byte.
  void copy_out(std::uint64_t transfer, std::size_t bytes = kSmall) {
    ASSERT_EQ(lanes_.out().open(transfer, transfer, bytes), 0);
    const BulkOut::Chunk chunk = lanes_.out().next(transfer);
    ASSERT_NE(chunk.bytes, nullptr);
    std::fill_n(chunk.bytes, chunk.size, static_cast<std::byte>(transfer));
    lanes_.out().copied(transfer, chunk, 0);
    lanes_.out().end_call(transfer, transfer, bytes, 0);
  }
  // Transfers 1 to `count`, a frame of kSmall each, in this order.
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

  Taking taking_;
  BulkLanes lanes_;
};

// 0: nothing at once; some: in two parts, within the head and behind it.
INSTANTIATE_TEST_SUITE_P(TakenAtOnce, BulkLanesTest,
                         ::testing::Values(0, 10, 60, 40'000, kFrame - 1, kFrame));

TEST_P(BulkLanesTest, FramesArriveWholeAndInTheirOrder) {
  const std::size_t free = lanes_.staging_out().free_slots();
  for (std::uint64_t transfer = 1; transfer <= 6; ++transfer) copy_out(transfer);
  expect_sent(6);
  lanes_.stop();  // The sender has given its last slot back then.
  EXPECT_EQ(lanes_.staging_out().free_slots(), free);
  EXPECT_EQ(lanes_.out().remembered(), 0U);
}

TEST_P(BulkLanesTest, WhoHasASmallCopysBytesSendsThem) {
  copy_out(1);
  expect_sent(1);
  EXPECT_EQ(by_this_thread(), std::min(GetParam(), kFrame));
}

TEST_P(BulkLanesTest, LargerOnesAreTheSenders) {
  copy_out(1, 2 * kSmall);
  EXPECT_EQ(taking_.sent(kFrame + kSmall).size(), kFrame + kSmall);
  EXPECT_EQ(by_this_thread(), 0U);
}

// More connections than the first.
class JoiningLanesTest : public BulkLanesTest {
 protected:
  JoiningLanesTest() : BulkLanesTest(kFrame) {}
  static Status say_nothing(transport::Connection&) { return {}; }
};

TEST_F(JoiningLanesTest, AsManyAsASessionMayHave) {
  std::size_t added = 0;
  while (added < 2 * limits::kConnectionsMax &&
         lanes_.add(std::make_unique<Taking>(kFrame), say_nothing)) {
    ++added;
  }
  EXPECT_EQ(added + 2, limits::kConnectionsMax);  // The log, and the first one.
}

TEST_F(JoiningLanesTest, OneThatCannotBeginIsNone) {
  const auto fails = [](transport::Connection&) { return Status(Code::kPeerGone, "on purpose"); };
  for (std::size_t times = 0; times < 2 * limits::kConnectionsMax; ++times) {
    EXPECT_FALSE(lanes_.add(std::make_unique<Taking>(kFrame), fails));
  }
  EXPECT_TRUE(lanes_.add(std::make_unique<Taking>(kFrame), say_nothing));
}

// Copies out keep their order, so they have one connection whatever joins.
TEST_F(JoiningLanesTest, BytesFromTheDeviceStayOnTheFirst) {
  auto other = std::make_unique<Taking>(kFrame);
  Taking& joined = *other;
  ASSERT_TRUE(lanes_.add(std::move(other), say_nothing));
  for (std::uint64_t transfer = 1; transfer <= 20; ++transfer) copy_out(transfer);
  expect_sent(20);
  EXPECT_TRUE(joined.sent(0).empty());
}

TEST_F(JoiningLanesTest, NoneAfterTheEnd) {
  lanes_.stop();
  EXPECT_FALSE(lanes_.add(std::make_unique<Taking>(kFrame), say_nothing));
}

}  // namespace
}  // namespace gpurun::server
