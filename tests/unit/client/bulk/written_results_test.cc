// Written results at the client: a completion comes only when all bytes are accounted for, the
// worker's right to write ends before a byte comes another way, and a worker that lies about writes
// ends the session.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "client/bulk/bulk.h"
#include "transport/loopback/connection.h"

namespace gpurun::client {
namespace {

using protocol::BulkHeader;
using protocol::FrameKind;

constexpr std::size_t kTotal = 3 * limits::kBulkChunkBytes;

class WrittenResultsTest : public testing::Test {
 protected:
  WrittenResultsTest() {
    auto pair = transport::loopback::connect_pair();
    ours_ = std::move(pair.first);
    worker_ = std::move(pair.second);
    Bulk::Listener listener;
    listener.user = this;
    listener.failed = [](void* of, Status cause) {
      static_cast<WrittenResultsTest*>(of)->note([&](auto& test) { test.failure_ = cause; });
    };
    listener.completed = [](void* of, std::uint64_t through) {
      static_cast<WrittenResultsTest*>(of)->note([&](auto& test) { test.through_ = through; });
    };
    listener.end_writes = [](void* of) {
      static_cast<WrittenResultsTest*>(of)->note([](auto& test) {
        if (test.ended_++ == 0) test.at_end_ = test.into_;
      });
    };
    bulk_ = std::make_unique<Bulk>(std::vector<transport::Connection*>{ours_.get()}, listener,
                                   Bulk::Known{false, true});
    EXPECT_TRUE(bulk_->start().ok());
  }
  ~WrittenResultsTest() override {
    ours_->shut_down();
    bulk_->end();
    bulk_->join();
  }

  template <typename Change>
  void note(Change change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    change(*this);
    changed_.notify_all();
  }
  template <typename Condition>
  bool eventually(Condition condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), condition);
  }
  std::uint64_t expect(bool written = true) {
    const std::uint64_t transfer = bulk_->mint();
    const HostBox box = HostBox::of(into_);
    if (written) {
      bulk_->expect_written(transfer, box, true);
    } else {
      static_cast<void>(bulk_->expect(transfer, box, true));
    }
    return transfer;
  }
  void send(FrameKind kind, const BulkHeader& header, ByteView bytes = {}) {
    protocol::FrameHeader frame;
    frame.kind = kind;
    frame.payload_bytes = static_cast<std::uint32_t>(sizeof header + bytes.size());
    const ByteView parts[] = {bytes_of(frame), bytes_of(header), bytes};
    EXPECT_TRUE(worker_->send(parts, Deadline::in(std::chrono::seconds(20))).ok());
  }
  bool completes(std::uint64_t number) {
    return eventually([&] { return through_ == number || !failure_.ok(); }) && failure_.ok();
  }
  bool is_refused() {
    return eventually([&] { return !failure_.ok(); }) && failure_.code() == Code::kProtocol;
  }

  Bytes into_ = Bytes(kTotal);
  std::unique_ptr<transport::Connection> ours_;
  std::unique_ptr<transport::Connection> worker_;
  std::unique_ptr<Bulk> bulk_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Status failure_;
  std::uint64_t through_ = 0;
  unsigned ended_ = 0;
  Bytes at_end_;  // The memory, when the worker's right to write first ended.
};

TEST_F(WrittenResultsTest, NoticeOfAllBytesCompletes) {
  const std::uint64_t transfer = expect();
  EXPECT_TRUE(bulk_->outstanding(into_));
  send(FrameKind::kChunkWritten, {transfer, kTotal, kTotal, 1});
  EXPECT_TRUE(completes(1));
  EXPECT_FALSE(bulk_->outstanding(into_));
  // This connection has no carrier, so nothing orders the notice behind the bytes.
  EXPECT_EQ(ended_, 1U);
}

TEST_F(WrittenResultsTest, RestComesAsChunksOnceNothingIsWrittenAnyMore) {
  const std::uint64_t transfer = expect();
  const Bytes rest(limits::kBulkChunkBytes, std::byte{7});
  send(FrameKind::kChunkWritten, {transfer, limits::kBulkChunkBytes, kTotal, 0});
  send(FrameKind::kChunk, {transfer, limits::kBulkChunkBytes, kTotal, 0}, rest);
  EXPECT_TRUE(eventually([&] { return ended_ != 0; }));
  EXPECT_EQ(at_end_, Bytes(kTotal)) << "a byte came before the end of the right";
  EXPECT_TRUE(bulk_->outstanding(into_)) << "a part counts as the whole";
  send(FrameKind::kChunk, {transfer, 2 * limits::kBulkChunkBytes, kTotal, 1}, rest);
  EXPECT_TRUE(completes(1));
  EXPECT_EQ(into_[limits::kBulkChunkBytes - 1], std::byte{0}) << "that part was written";
  EXPECT_EQ(std::count(into_.begin(), into_.end(), std::byte{7}), 2 * limits::kBulkChunkBytes);
}

TEST_F(WrittenResultsTest, ChunkWithoutNoticeEndsTheRightFirst) {
  const std::uint64_t transfer = expect();
  const Bytes first(limits::kBulkChunkBytes, std::byte{7});
  send(FrameKind::kChunk, {transfer, 0, kTotal, 0}, first);
  EXPECT_TRUE(eventually([&] { return ended_ != 0; }));
  EXPECT_EQ(at_end_, Bytes(kTotal));
}

TEST_F(WrittenResultsTest, FailedCopyEndsTheRightWhereNothingOrdersItsEnd) {
  const std::uint64_t transfer = expect();
  send(FrameKind::kChunkAbandoned, {transfer, 0, kTotal, 1});
  EXPECT_TRUE(completes(1));
  EXPECT_EQ(ended_, 1U);
  EXPECT_FALSE(bulk_->outstanding(into_));
}

TEST_F(WrittenResultsTest, OtherTransfersKeepTheRight) {
  const std::uint64_t transfer = expect(false);
  const Bytes whole(limits::kBulkChunkBytes, std::byte{7});
  for (std::size_t i = 0; i < 3; ++i) {
    send(FrameKind::kChunk, {transfer, i * whole.size(), kTotal, i == 2 ? 1U : 0U}, whole);
  }
  EXPECT_TRUE(completes(1));
  EXPECT_EQ(ended_, 0U);
}

// A write could pass the bytes that a thread here has still to write.
TEST_F(WrittenResultsTest, OnlyBytesOfThreadsAreInTheWayOfWrites) {
  const std::uint64_t written = expect();
  EXPECT_FALSE(bulk_->receives(into_));
  const std::uint64_t sent = expect(false);
  EXPECT_TRUE(bulk_->receives(into_));
  bulk_->cancel(sent);
  EXPECT_FALSE(bulk_->receives(into_));
  bulk_->cancel(written);
}

TEST_F(WrittenResultsTest, NoticeOfTransferThatNeverBeganIsRefused) {
  send(FrameKind::kChunkWritten, {9, kTotal, kTotal, 1});
  EXPECT_TRUE(is_refused());
}

TEST_F(WrittenResultsTest, NoticeOfTransferThatIsSentIsRefused) {
  send(FrameKind::kChunkWritten, {expect(false), kTotal, kTotal, 1});
  EXPECT_TRUE(is_refused());
  EXPECT_EQ(through_, 0U);
}

TEST_F(WrittenResultsTest, NoticeOfAnotherSizeIsRefused) {
  send(FrameKind::kChunkWritten, {expect(), kTotal - 1, kTotal - 1, 1});
  EXPECT_TRUE(is_refused());
}

TEST_F(WrittenResultsTest, NoticeWithoutItsNumberIsRefused) {
  send(FrameKind::kChunkWritten, {expect(), kTotal, kTotal, 0});
  EXPECT_TRUE(is_refused());
}

TEST_F(WrittenResultsTest, PartWithTheNumberOfTheWholeIsRefused) {
  send(FrameKind::kChunkWritten, {expect(), kTotal - 1, kTotal, 1});
  EXPECT_TRUE(is_refused());
  EXPECT_EQ(through_, 0U);
}

TEST_F(WrittenResultsTest, NoticeThatComesTwiceIsRefused) {
  const std::uint64_t transfer = expect();
  send(FrameKind::kChunkWritten, {transfer, kTotal, kTotal, 1});
  send(FrameKind::kChunkWritten, {transfer, kTotal, kTotal, 1});
  EXPECT_TRUE(is_refused());
}

}  // namespace
}  // namespace gpurun::client
