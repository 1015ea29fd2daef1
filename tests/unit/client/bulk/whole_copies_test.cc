// Whole copies: copies from the device with bytes on the log. They and the copies that come as
// chunks are written in the order in which the device completed them, whichever arrives first. The
// worker's messages about them are bounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>

#include "client/bulk/bulk.h"
#include "transport/loopback/connection.h"

namespace gpurun::client {
namespace {

using protocol::BulkHeader;
using protocol::FrameKind;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kBytes = 4096;

class WholeCopiesTest : public ::testing::Test {
 protected:
  WholeCopiesTest() {
    Bulk::Listener listener;
    listener.user = this;
    listener.failed = [](void*, Status) {};
    listener.completed = [](void* of, std::uint64_t through) {
      auto& test = *static_cast<WholeCopiesTest*>(of);
      const std::lock_guard lock(test.mutex_);
      test.through_ = std::max(test.through_, through);  // Two threads may report at the same time.
      test.changed_.notify_all();
    };
    bulk_ = std::make_unique<Bulk>(std::vector<transport::Connection*>{pair_.first.get()}, listener,
                                   Bulk::Known{false, true});
    EXPECT_TRUE(bulk_->start().ok());
  }
  ~WholeCopiesTest() override {
    pair_.first->shut_down();
    bulk_->end();
    bulk_->join();
  }

  bool completed(std::uint64_t through, milliseconds within = seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, within, [&] { return through_ >= through; });
  }
  std::uint64_t expect() {
    const std::uint64_t transfer = bulk_->mint();
    (void)bulk_->expect(transfer, HostBox::of(memory_), true);
    return transfer;
  }
  // Filled with the transfer's number.
  void chunk(std::uint64_t transfer, std::uint64_t watermark) {
    const Bytes bytes(kBytes, static_cast<std::byte>(transfer));
    const BulkHeader about{transfer, 0, kBytes, watermark};
    protocol::FrameHeader header;
    header.kind = FrameKind::kChunk;
    header.payload_bytes = static_cast<std::uint32_t>(sizeof about + kBytes);
    const ByteView parts[] = {bytes_of(header), bytes_of(about), bytes};
    EXPECT_TRUE(pair_.second->send(parts, Deadline::in(seconds(20))).ok());
  }
  // The result of the delivery.
  static constexpr Code kNoRoom = Code::kResourceExhausted;
  Status whole(std::uint64_t transfer, std::uint64_t number, std::size_t size = kBytes) {
    const Result<bool> taken =
        bulk_->take_whole(transfer, number, Bytes(size, static_cast<std::byte>(transfer)));
    if (!taken.ok()) return taken.status();
    return *taken ? Status() : Status(kNoRoom, "no room");
  }
  bool all_are(std::uint64_t transfer) const {
    return std::all_of(memory_.begin(), memory_.end(), [transfer](std::byte each) {
      return each == static_cast<std::byte>(transfer);
    });
  }

  transport::loopback::Pair pair_ = transport::loopback::connect_pair();
  Bytes memory_ = Bytes(kBytes);
  std::unique_ptr<Bulk> bulk_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t through_ = 0;
};

TEST_F(WholeCopiesTest, CopyIsWrittenOnArrival) {
  const std::uint64_t one = expect();
  EXPECT_TRUE(bulk_->outstanding(memory_));
  EXPECT_TRUE(whole(one, 1).ok());
  EXPECT_TRUE(all_are(one));
  EXPECT_FALSE(bulk_->outstanding());
  EXPECT_TRUE(completed(1, milliseconds(0)));
}

TEST_F(WholeCopiesTest, CopyWaitsForLateChunkOfEarlierCopy) {
  const std::uint64_t one = expect(), two = expect(), three = expect();
  EXPECT_TRUE(whole(two, 2).ok());
  EXPECT_TRUE(whole(three, 3).ok());
  EXPECT_TRUE(all_are(0)) << "the first is not there";
  EXPECT_TRUE(bulk_->outstanding(memory_));
  chunk(one, 1);
  EXPECT_TRUE(completed(3));
  EXPECT_TRUE(all_are(three));
  EXPECT_FALSE(bulk_->outstanding());
}

TEST_F(WholeCopiesTest, EarlierCopyIsWrittenBeforeLaterChunk) {
  const std::uint64_t one = expect(), two = expect();
  chunk(two, 2);
  EXPECT_FALSE(completed(2, milliseconds(20)));
  EXPECT_TRUE(whole(one, 1).ok());
  EXPECT_TRUE(completed(2));
  EXPECT_TRUE(all_are(two));
}

// Its call has failed, or is no longer waited for. Its place in the order is still filled.
TEST_F(WholeCopiesTest, CancelledCopyIsDiscarded) {
  const std::uint64_t one = expect(), two = expect(), three = expect();
  EXPECT_TRUE(bulk_->cancel(one));
  EXPECT_TRUE(whole(one, 1).ok());
  EXPECT_TRUE(all_are(0));
  EXPECT_TRUE(whole(three, 3).ok());
  EXPECT_TRUE(bulk_->cancel(three));  // While it waits.
  EXPECT_TRUE(whole(two, 2).ok());
  EXPECT_TRUE(all_are(two));
  EXPECT_TRUE(completed(3, milliseconds(0)));
}

TEST_F(WholeCopiesTest, RejectsInvalidWholeCopies) {
  const std::uint64_t one = expect();
  EXPECT_EQ(whole(one + 1, 1).code(), Code::kProtocol) << "never begun";
  EXPECT_EQ(whole(one, 0).code(), Code::kProtocol) << "no number";
  EXPECT_EQ(whole(one, 1, kBytes - 1).code(), Code::kProtocol) << "another size";
  EXPECT_EQ(whole(one, 1, limits::kItemCopyBytesMax + 1).code(), Code::kProtocol) << "too large";
  EXPECT_TRUE(all_are(0));
  EXPECT_TRUE(whole(one, 2).ok());
  EXPECT_EQ(whole(one, 2).code(), Code::kProtocol) << "twice, kept";
  EXPECT_TRUE(whole(one, 1).ok());
  EXPECT_EQ(whole(one, 1).code(), Code::kProtocol) << "twice";
  EXPECT_EQ(whole(one, 2).code(), Code::kProtocol) << "twice";
}

// A worker that sends all copies except the first one cannot fill our memory.
TEST_F(WholeCopiesTest, BoundsBytesOfWaitingCopies) {
  const std::uint64_t one = expect(), two = expect();
  constexpr std::size_t kEach = limits::kItemCopyBytesMax + Bulk::kKeptBytesEach;
  std::uint64_t number = 2;
  for (std::size_t kept = kEach; kept <= Bulk::kKeptBytesMax; kept += kEach) {
    ASSERT_TRUE(whole(two, number++, limits::kItemCopyBytesMax).ok());
  }
  EXPECT_EQ(whole(two, number, limits::kItemCopyBytesMax).code(), kNoRoom);
  EXPECT_TRUE(bulk_->cancel(two));  // No copy of that size is expected.
  chunk(one, 1);
  EXPECT_TRUE(completed(number - 1));
  EXPECT_TRUE(whole(two, number).ok());
}

TEST_F(WholeCopiesTest, BoundsNumberOfWaitingCopies) {
  const std::uint64_t one = expect();
  EXPECT_TRUE(whole(one, Bulk::kEarlyCompletionsMax, 4).ok());
  EXPECT_EQ(whole(one, 1 + Bulk::kEarlyCompletionsMax, 4).code(), kNoRoom);
  EXPECT_EQ(whole(one, ~std::uint64_t{0}, 4).code(), kNoRoom);
}

TEST_F(WholeCopiesTest, CompletionAndEndWakeWaiterForRoom) {
  const std::uint64_t one = expect();
  auto waits = std::async(std::launch::async, [&] { bulk_->await_completion(0, seconds(60)); });
  chunk(one, 1);
  EXPECT_EQ(waits.wait_for(seconds(20)), std::future_status::ready);
  auto more = std::async(std::launch::async, [&] { bulk_->await_completion(1, seconds(60)); });
  bulk_->end();
  EXPECT_EQ(more.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_EQ(whole(one, 2).code(), Code::kPeerGone);
  bulk_->await_completion(1, milliseconds(0));  // Returns.
}

TEST_F(WholeCopiesTest, PitchedCopyLeavesGapsUnchanged) {
  const std::uint64_t one = bulk_->mint();
  HostBox box = HostBox::of(memory_);
  box.line_pitch = kBytes / 2;
  box.width = 4;
  box.lines = 2;
  (void)bulk_->expect(one, box, true);
  EXPECT_TRUE(whole(one, 1, 8).ok());
  Bytes right(kBytes);
  for (std::size_t at : {std::size_t{0}, kBytes / 2}) {
    std::fill_n(right.begin() + static_cast<std::ptrdiff_t>(at), 4, static_cast<std::byte>(one));
  }
  EXPECT_EQ(memory_, right);
}

}  // namespace
}  // namespace gpurun::client
