// Pulled bytes on the worker: they are read in the order that their streams allow, slots never
// deadlock, a failed read fails no session, and no slot is used again that a device may still
// write.
#include "server/bulk/bulk_pulls.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/unit/server/bulk/bulk_parts.h"

namespace gpurun::server {
namespace {

using protocol::BulkHeader;
using protocol::FrameKind;
using protocol::PulledSource;
using transport::RemoteMemory;

constexpr std::size_t kSlots = BulkPulls::kStagingBytes / kChunk;

// Remote memory that the test plays: a read ends when the test says so.
class PlayedMemory final : public RemoteMemory {
 public:
  bool works() const noexcept override {
    const std::lock_guard lock(mutex_);
    return !failed_;
  }
  Result<std::uint32_t> lend(ByteView) override { return Status(Code::kUnavailable, "not here"); }
  void take_back(std::uint32_t) noexcept override {}
  Status enroll(MutableBytes memory) override {
    if (enrolls_.valid()) enrolls_.wait_for(std::chrono::seconds(20));
    if (refuses_) return Status(Code::kResourceExhausted, "no memory");
    enrolled_ = memory;
    return {};
  }
  void withdraw() noexcept override { enrolled_ = {}; }
  std::size_t read_bytes_max() const noexcept override { return bytes_max_; }
  Began begin_read(const Read& read) noexcept override {
    const std::lock_guard lock(mutex_);
    EXPECT_GE(read.into, enrolled_.data());
    EXPECT_LE(read.into + read.bytes, enrolled_.data() + enrolled_.size());
    if (failed_) return Began::kFailed;
    if (reads_.size() >= most_) return Began::kLater;
    reads_.push_back(read);
    changed_.notify_all();
    return Began::kYes;
  }
  std::size_t await_reads(std::span<Ended> ended, Deadline deadline) noexcept override {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.when(), [&] { return !ended_.empty(); });
    std::size_t count = 0;
    for (; count < ended.size() && !ended_.empty(); ++count) {
      ended[count] = ended_.front();
      ended_.pop_front();
    }
    return count;
  }
  void give_up() noexcept override {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    if (loses_) return;
    for (const Read& read : reads_) ended_.push_back({read.id, false});
    reads_.clear();
    changed_.notify_all();
  }

  // The next read, once it has begun. It stays under way.
  Read next() {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, std::chrono::seconds(20),
                                        [&] { return reads_.size() > looked_at_; });
    EXPECT_TRUE(came) << "no read begins";
    return came ? reads_[looked_at_++] : Read{};
  }
  std::size_t under_way() const {
    const std::lock_guard lock(mutex_);
    return reads_.size();
  }
  // Ends the oldest `count` reads, with bytes that tell their address.
  void end(std::size_t count, bool right = true) {
    const std::lock_guard lock(mutex_);
    for (; count != 0 && !reads_.empty(); --count) {
      const Read read = reads_.front();
      reads_.pop_front();
      if (looked_at_ != 0) --looked_at_;
      if (right) std::memset(read.into, static_cast<int>(read.from / kChunk), read.bytes);
      ended_.push_back({read.id, right});
    }
    changed_.notify_all();
  }

  std::size_t most_ = 1000;
  std::size_t bytes_max_ = std::size_t{8} << 20;
  bool refuses_ = false;
  std::shared_future<void> enrolls_;  // enroll() waits for it.
  bool loses_ = false;                // Reads have no end when it is given up.

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  MutableBytes enrolled_;
  std::deque<Read> reads_;
  std::size_t looked_at_ = 0;
  std::deque<Ended> ended_;
  bool failed_ = false;
};

class BulkPullsTest : public ::testing::Test {
 protected:
  void SetUp() override { pulls_.begin(); }
  ~BulkPullsTest() override { pulls_.stop(); }

  static PulledSource source(std::size_t chunks, bool in_turn = false, std::uint64_t first = 1) {
    return {first * kChunk, chunks * kChunk, 7, in_turn ? 1U : 0U};
  }
  void note(FrameKind kind, const BulkHeader& header) {
    const std::lock_guard lock(mutex_);
    said_.push_back({kind, header});
    changed_.notify_all();
  }
  std::pair<FrameKind, BulkHeader> said() {
    std::unique_lock lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return !said_.empty(); });
    EXPECT_TRUE(came) << "nothing is said";
    if (!came) return {};
    const auto first = said_.front();
    said_.pop_front();
    return first;
  }
  bool nothing_said() {
    const std::lock_guard lock(mutex_);
    return said_.empty();
  }
  BulkPulls::Chunk take(std::uint64_t transfer) {
    EXPECT_TRUE(eventually([&] { return pulls_.at_hand(transfer) != nullptr; }));
    const auto chunk = pulls_.next(transfer);
    EXPECT_TRUE(chunk.has_value());
    return chunk.value_or(BulkPulls::Chunk{});
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<FrameKind, BulkHeader>> said_;
  PlayedMemory remote_;
  BulkPulls pulls_{&remote_,
                   {this, [](void*) {}, [](void*) {},
                    [](void* user, FrameKind kind, const BulkHeader& header) {
                      static_cast<BulkPullsTest*>(user)->note(kind, header);
                    }}};
};

TEST_F(BulkPullsTest, ChunksComeInOrderAndOneReceiptFollowsTheLast) {
  ASSERT_TRUE(pulls_.open(1, 10, source(3)));
  for (std::uint64_t chunk = 0; chunk < 3; ++chunk) {
    const RemoteMemory::Read read = remote_.next();
    EXPECT_EQ(read.from, (1 + chunk) * kChunk);
    EXPECT_EQ(read.bytes, kChunk);
    EXPECT_EQ(read.key, 7U);
  }
  EXPECT_EQ(pulls_.at_hand(1), nullptr) << "before its read has ended";
  remote_.end(2);
  for (std::uint64_t chunk = 0; chunk < 2; ++chunk) {
    const BulkPulls::Chunk got = take(1);
    EXPECT_EQ(got.offset, chunk * kChunk);
    EXPECT_EQ(got.bytes[kChunk - 1], static_cast<std::byte>(1 + chunk));
    pulls_.retired(1, got);
  }
  EXPECT_TRUE(nothing_said()) << "the program may not reuse memory that is still read";
  EXPECT_FALSE(pulls_.all_given(1));
  remote_.end(1);
  const auto [kind, header] = said();
  EXPECT_EQ(kind, FrameKind::kChunkReceipt);
  EXPECT_EQ(header.offset, 3 * kChunk);
  EXPECT_EQ(header.total, 3 * kChunk);
  pulls_.retired(1, take(1));
  EXPECT_TRUE(pulls_.all_given(1));
  pulls_.end_call(1, 10);
  EXPECT_TRUE(nothing_said());
  EXPECT_EQ(pulls_.remembered(), 0U);
  EXPECT_EQ(pulls_.staging().free_slots(), kSlots);
}

TEST_F(BulkPullsTest, SourceThatMayStillBeWrittenIsReadInTurn) {
  ASSERT_TRUE(pulls_.open(1, 10, source(2, true)));
  ASSERT_TRUE(pulls_.open(2, 11, source(2, false, 9)));
  EXPECT_EQ(remote_.next().from, 9 * kChunk);
  EXPECT_EQ(remote_.next().from, 10 * kChunk);
  EXPECT_EQ(remote_.under_way(), 2U) << "read before its stream was there";
  pulls_.reached(1);
  EXPECT_EQ(remote_.next().from, kChunk);
  EXPECT_EQ(remote_.next().from, 2 * kChunk);
}

// The copy that reads ahead may wait for work that needs the other copy.
TEST_F(BulkPullsTest, CopyAheadLeavesSlotsToCopyInTurn) {
  ASSERT_TRUE(pulls_.open(1, 10, source(2 * kSlots)));
  ASSERT_TRUE(eventually([&] { return remote_.under_way() == kSlots - BulkPulls::kTurnSlots; }));
  ASSERT_TRUE(pulls_.open(2, 11, source(2 * kSlots, true, 1000)));
  pulls_.reached(2);
  EXPECT_EQ(remote_.under_way(), kSlots);
  remote_.end(kSlots);
  const BulkPulls::Chunk got = take(2);
  pulls_.retired(2, got);
  ASSERT_TRUE(eventually([&] { return remote_.under_way() == 1; }));
  EXPECT_EQ(remote_.next().from, (1000 + BulkPulls::kTurnSlots) * kChunk) << "of the copy in turn";
}

TEST_F(BulkPullsTest, CopiesTakeTurns) {
  remote_.most_ = 2;
  ASSERT_TRUE(pulls_.open(1, 10, source(4)));
  ASSERT_TRUE(pulls_.open(2, 11, source(4, false, 100)));
  EXPECT_EQ(remote_.under_way(), 2U);
  remote_.end(2);
  std::vector<std::uint64_t> from = {remote_.next().from / kChunk, remote_.next().from / kChunk};
  EXPECT_TRUE(from[0] >= 100 || from[1] >= 100) << "the second one starves";
}

TEST_F(BulkPullsTest, DeviceWithShortMessagesReadsChunkInParts) {
  remote_.bytes_max_ = kChunk / 2 - 1;
  ASSERT_TRUE(pulls_.open(1, 10, source(2)));
  for (const std::size_t bytes : {kChunk / 2 - 1, kChunk / 2 - 1, std::size_t{2}}) {
    EXPECT_EQ(remote_.next().bytes, bytes);
  }
  remote_.end(2);
  EXPECT_EQ(pulls_.at_hand(1), nullptr) << "two bytes are missing";
  remote_.end(1);
  EXPECT_EQ(take(1).size, kChunk);
}

TEST_F(BulkPullsTest, FailedReadFailsEveryCopyThatIsNotRead) {
  ASSERT_TRUE(pulls_.open(1, 10, source(2)));
  ASSERT_TRUE(pulls_.open(2, 11, source(3, false, 100)));
  ASSERT_TRUE(eventually([&] { return remote_.under_way() == 5; }));
  ASSERT_TRUE(pulls_.open(3, 12, source(2, true, 200)));
  remote_.end(4);
  EXPECT_EQ(said().second.transfer, 1U);
  remote_.end(1, false);
  EXPECT_TRUE(eventually([&] { return pulls_.has_failed(2); }));
  EXPECT_TRUE(eventually([&] { return pulls_.has_failed(3); }));
  EXPECT_FALSE(pulls_.has_failed(1)) << "all of it was read before";
  EXPECT_EQ(take(1).offset, 0U);
  EXPECT_FALSE(pulls_.open(4, 13, source(2)));
  pulls_.end_call(2, 11);
  EXPECT_TRUE(nothing_said()) << "the client is asked for these bytes, and told nothing else";
}

// The client must not learn that it may free memory that a device still reads.
TEST_F(BulkPullsTest, EndOfCallWaitsForReadsBeforeItAbandons) {
  remote_.most_ = 2;
  ASSERT_TRUE(pulls_.open(1, 10, source(5)));
  ASSERT_TRUE(eventually([&] { return remote_.under_way() == 2; }));
  remote_.end(1);
  ASSERT_TRUE(eventually([&] { return pulls_.at_hand(1) != nullptr; }));
  ASSERT_TRUE(eventually([&] { return remote_.under_way() == 2; }));
  pulls_.end_call(1, 99);  // Another call names its number.
  pulls_.end_call(1, 10);
  EXPECT_TRUE(nothing_said());
  remote_.end(2);
  const auto [kind, header] = said();
  EXPECT_EQ(kind, FrameKind::kChunkAbandoned);
  EXPECT_EQ(header.transfer, 1U);
  EXPECT_EQ(pulls_.remembered(), 0U);
  EXPECT_EQ(pulls_.staging().free_slots(), kSlots);
}

TEST_F(BulkPullsTest, NumberIsUsedOnce) {
  ASSERT_TRUE(pulls_.open(1, 10, source(2)));
  EXPECT_FALSE(pulls_.open(1, 11, source(2)));
}

constexpr BulkPulls::Listener kDeaf = {nullptr, [](void*) {}, [](void*) {},
                                       [](void*, FrameKind, const BulkHeader&) {}};

TEST_F(BulkPullsTest, NothingIsReadWithoutMemoryForIt) {
  PlayedMemory full;
  full.refuses_ = true;
  BulkPulls pulls(&full, kDeaf);
  ASSERT_TRUE(pulls.open(1, 10, source(2)));
  EXPECT_TRUE(eventually([&] { return pulls.has_failed(1); }));
  EXPECT_FALSE(pulls.open(2, 11, source(2)));
  EXPECT_EQ(pulls.why_refused(), "no memory");
  EXPECT_TRUE(full.works()) << "the carrier is given up";
  BulkPulls none(nullptr, {});
  EXPECT_FALSE(none.may_open());
  EXPECT_FALSE(none.open(1, 10, source(2)));
}

// The kernel locks the pages of all slots, while the executor has other calls to issue.
TEST_F(BulkPullsTest, FirstCopyDoesNotWaitForTheRegistration) {
  std::promise<void> registered;
  PlayedMemory slow;
  slow.enrolls_ = registered.get_future().share();
  BulkPulls pulls(&slow, kDeaf);
  ASSERT_TRUE(pulls.open(1, 10, source(2)));
  ASSERT_TRUE(pulls.open(2, 11, source(3)));
  EXPECT_EQ(pulls.at_hand(1), nullptr);
  EXPECT_EQ(slow.under_way(), 0U);
  registered.set_value();
  EXPECT_TRUE(eventually([&] { return slow.under_way() == 5; }));
}

TEST_F(BulkPullsTest, SlotOfReadWithoutEndIsNeverUsedAgain) {
  remote_.loses_ = true;
  ASSERT_TRUE(pulls_.open(1, 10, source(2)));
  ASSERT_TRUE(eventually([&] { return remote_.under_way() == 2; }));
  remote_.end(1);
  const Deadline late = Deadline::in(BulkPulls::kReadDeadline + BulkPulls::kEndDeadline * 5);
  while (!pulls_.has_failed(1) && !late.passed()) std::this_thread::yield();
  EXPECT_EQ(pulls_.remembered(), 0U);
  EXPECT_EQ(pulls_.lost_slots(), 1U);
  EXPECT_EQ(pulls_.staging().free_slots(), kSlots - 1);
}

TEST_F(BulkPullsTest, StopEndsReadsUnderWay) {
  ASSERT_TRUE(pulls_.open(1, 10, source(2)));
  ASSERT_TRUE(eventually([&] { return remote_.under_way() == 2; }));
  pulls_.stop();
  EXPECT_EQ(remote_.under_way(), 0U);
  EXPECT_FALSE(remote_.works());
}

}  // namespace
}  // namespace gpurun::server
