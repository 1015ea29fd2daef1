// Spread copies: copies from the device with chunks over two connections. Of two copies to one
// place the later one remains, however the connections run. A chunk waits for nothing that may
// never arrive.
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

constexpr std::size_t kChunk = limits::kBulkChunkBytes;
constexpr std::uint64_t kChunks = 4, kTotal = kChunks * kChunk;
static_assert(kTotal >= ConnectionCount::kTransferBytesMin);

class SpreadCopiesTest : public ::testing::Test {
 protected:
  SpreadCopiesTest() {
    for (auto& pair : pairs_) pair = transport::loopback::connect_pair();
    Bulk::Listener listener;
    listener.user = this;
    listener.failed = [](void* of, Status cause) {
      static_cast<SpreadCopiesTest*>(of)->note([&](auto& test) { test.failure_ = cause; });
    };
    listener.completed = [](void* of, std::uint64_t through) {
      static_cast<SpreadCopiesTest*>(of)->note(
          [&](auto& test) { test.through_ = std::max(test.through_, through); });
    };
    bulk_ = std::make_unique<Bulk>(
        std::vector<transport::Connection*>{pairs_[0].first.get(), pairs_[1].first.get()}, listener,
        Bulk::Known{false, true});
    EXPECT_TRUE(bulk_->start().ok());
  }
  ~SpreadCopiesTest() override {
    for (auto& pair : pairs_) pair.first->shut_down();
    bulk_->end();
    bulk_->join();
  }

  template <typename Change>
  void note(Change change) {
    const std::lock_guard lock(mutex_);
    change(*this);
    changed_.notify_all();
  }
  template <typename Rep, typename Ratio>
  bool completed(std::uint64_t through, std::chrono::duration<Rep, Ratio> within) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, within, [&] { return through_ >= through; });
  }
  Status failure() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(20), [&] { return !failure_.ok(); }));
    return failure_;
  }

  std::uint64_t expect() {
    const std::uint64_t transfer = bulk_->mint();
    EXPECT_EQ(bulk_->expect(transfer, HostBox::of(memory_), true), 2u);
    return transfer;
  }
  // Sends the transfer's chunk `number`, filled with the transfer's number. Waits until all except
  // a little is received. False: the connection is gone.
  bool chunk(std::size_t connection, std::uint64_t transfer, std::uint64_t number,
             std::uint64_t watermark) {
    const Bytes bytes(kChunk, static_cast<std::byte>(transfer));
    const BulkHeader about{transfer, number * kChunk, kTotal, watermark};
    protocol::FrameHeader header;
    header.kind = FrameKind::kChunk;
    header.payload_bytes = static_cast<std::uint32_t>(sizeof about + kChunk);
    const ByteView parts[] = {bytes_of(header), bytes_of(about), bytes};
    return pairs_[connection].second->send(parts, Deadline::in(seconds(20))).ok();
  }
  bool all_are(std::uint64_t transfer) const {
    return std::all_of(memory_.begin(), memory_.end(), [transfer](std::byte each) {
      return each == static_cast<std::byte>(transfer);
    });
  }

  transport::loopback::Pair pairs_[2];
  Bytes memory_ = Bytes(kTotal);
  std::unique_ptr<Bulk> bulk_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t through_ = 0;
  Status failure_;
};

TEST_F(SpreadCopiesTest, AcceptsChunksInAnyOrderOverEitherConnection) {
  const std::uint64_t one = expect();
  EXPECT_TRUE(chunk(1, one, 3, 1) && chunk(1, one, 1, 0));
  EXPECT_FALSE(completed(1, milliseconds(20)));
  EXPECT_TRUE(chunk(0, one, 0, 0) && chunk(0, one, 2, 0));
  EXPECT_TRUE(completed(1, seconds(20)));
  EXPECT_TRUE(all_are(one));
}

TEST_F(SpreadCopiesTest, LaterCopyWinsOverLateChunkOfEarlierCopy) {
  const std::uint64_t one = expect(), two = expect();
  // The first copy's last chunk is late. The second copy's chunks come over the other connection.
  for (std::uint64_t number = 0; number + 1 < kChunks; ++number) {
    EXPECT_TRUE(chunk(0, one, number, 0));
  }
  const auto other = std::async(std::launch::async, [&] {
    for (std::uint64_t number = 0; number < kChunks; ++number) {
      EXPECT_TRUE(chunk(1, two, number, number + 1 == kChunks ? 2 : 1));
    }
  });
  EXPECT_FALSE(completed(2, milliseconds(50)));
  EXPECT_TRUE(chunk(0, one, kChunks - 1, 1));
  EXPECT_TRUE(completed(2, seconds(20)));
  EXPECT_TRUE(all_are(two));
}

// The driver failed behind the chunk that reported the end.
TEST_F(SpreadCopiesTest, CancelledCopyUnblocksLaterCopy) {
  const std::uint64_t one = expect(), two = expect();
  EXPECT_TRUE(chunk(1, one, kChunks - 1, 1));
  const auto other = std::async(std::launch::async, [&] { EXPECT_TRUE(chunk(1, two, 0, 1)); });
  EXPECT_FALSE(completed(1, milliseconds(20)));
  EXPECT_TRUE(bulk_->cancel(one));
  EXPECT_TRUE(completed(1, seconds(20)));
  for (std::uint64_t number = 1; number < kChunks; ++number) {
    EXPECT_TRUE(chunk(0, two, number, number + 1 == kChunks ? 2 : 1));
  }
  EXPECT_TRUE(completed(2, seconds(20)));
  EXPECT_TRUE(all_are(two));
}

TEST_F(SpreadCopiesTest, RejectsWatermarkOfUnrequestedCopy) {
  const auto sent = std::async(std::launch::async, [&] { (void)chunk(0, expect(), 0, 1000); });
  EXPECT_EQ(failure().code(), Code::kProtocol);
  pairs_[0].first->shut_down();
}

TEST_F(SpreadCopiesTest, EndDoesNotWaitForMissingChunks) {
  (void)expect();
  const auto sent = std::async(std::launch::async, [&] { (void)chunk(0, expect(), 0, 1); });
  EXPECT_FALSE(completed(1, milliseconds(20)));
  for (auto& pair : pairs_) pair.first->shut_down();
  bulk_->end();
  bulk_->join();
}

}  // namespace
}  // namespace gpurun::client
