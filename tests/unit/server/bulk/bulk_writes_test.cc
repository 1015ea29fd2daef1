// Written bytes on the worker: each chunk goes to its place, what was not written is named exactly
// once and in order, and no wait lasts longer than a device may be silent.
#include "server/bulk/bulk_writes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <vector>

namespace gpurun::server {
namespace {

using protocol::BulkHeader;
using protocol::WrittenDestination;
using std::chrono::milliseconds;
using transport::RemoteMemory;

constexpr std::size_t kChunk = limits::kBulkChunkBytes;

// Remote memory that the test plays. The sender is the only thread, so what ends is set before.
class PlayedMemory final : public RemoteMemory {
 public:
  bool works() const noexcept override { return !failed_; }
  Result<std::uint32_t> lend(ByteView) override { return Status(Code::kUnavailable, "not here"); }
  void take_back(std::uint32_t) noexcept override {}
  Status enroll(MutableBytes) override { return {}; }
  void withdraw() noexcept override {}
  std::size_t read_bytes_max() const noexcept override { return bytes_max_; }
  Began begin_read(const Read&) noexcept override { return Began::kFailed; }
  std::size_t await_reads(std::span<Ended>, Deadline) noexcept override { return 0; }
  bool writes() const noexcept override { return writes_; }
  Status enroll_source(MutableBytes memory) override {
    if (refuses_) return Status(Code::kResourceExhausted, "no memory");
    enrolled_ = memory;
    return {};
  }
  void withdraw_source() noexcept override { enrolled_ = {}; }
  Began begin_write(const Write& write) noexcept override {
    EXPECT_GE(write.from, enrolled_.data());
    EXPECT_LE(write.from + write.bytes, enrolled_.data() + enrolled_.size());
    if (failed_ || begun_.size() == refused_from_) return Began::kFailed;
    if (under_way_.size() >= most_) return Began::kLater;
    begun_.push_back(write);
    under_way_.push_back(write.id);
    return Began::kYes;
  }
  // As many as may end now end with the next look.
  std::size_t await_writes(std::span<Ended> ended, Deadline deadline) noexcept override {
    std::size_t count = 0;
    while (count < ended.size() && !under_way_.empty() && (ends_ != 0 || gave_up_)) {
      const bool right = ends_ != 0;
      if (right) --ends_;
      ended[count++] = {under_way_.front(), right};
      under_way_.pop_front();
    }
    while (count == 0 && !deadline.passed()) {
    }
    return count;
  }
  void give_up() noexcept override {
    failed_ = true;
    gave_up_ = !loses_;
  }

  std::size_t most_ = 1000;
  std::size_t bytes_max_ = std::size_t{8} << 20;
  std::size_t ends_ = 0;             // Writes that may end right.
  std::size_t refused_from_ = 1000;  // The device refuses the next one after so many.
  bool writes_ = true;
  bool refuses_ = false;
  bool loses_ = false;  // Writes have no end when it is given up.
  std::vector<Write> begun_;
  bool gave_up_ = false;

 private:
  MutableBytes enrolled_;
  std::deque<std::uint64_t> under_way_;
  bool failed_ = false;
};

class BulkWritesTest : public ::testing::Test {
 protected:
  static WrittenDestination destination(std::uint64_t chunks) {
    return {100 * kChunk, chunks * kChunk, 7, 0};
  }
  BulkWrites::Chunk chunk(std::uint64_t transfer, std::uint64_t index, std::uint64_t chunks) {
    std::byte* const slot = staging_.take();
    EXPECT_NE(slot, nullptr);
    const bool last = index + 1 == chunks;
    return {{transfer, index * kChunk, chunks * kChunk, last ? ++number_ : 0}, {slot, kChunk}};
  }
  void write(std::uint64_t transfer, std::uint64_t index, std::uint64_t chunks) {
    writes_.write(chunk(transfer, index, chunks), &written_);
  }
  static std::vector<std::uint64_t> offsets(const BulkWrites::Chunks& chunks) {
    std::vector<std::uint64_t> found;
    for (const auto& each : chunks) found.push_back(each.header.offset / kChunk);
    return found;
  }
  using Offsets = std::vector<std::uint64_t>;

  PlayedMemory remote_;
  Staging staging_{std::size_t{8} << 20};
  BulkWrites writes_{&remote_, staging_};
  BulkWrites::Chunks written_;
  std::uint64_t number_ = 0;
};

TEST_F(BulkWritesTest, ChunksGoToTheirPlacesAndTheirSlotsAreFreeAfterwards) {
  ASSERT_TRUE(writes_.open(1, destination(3)));
  for (std::uint64_t index = 0; index < 3; ++index) write(1, index, 3);
  for (std::uint64_t index = 0; index < 3; ++index) {
    EXPECT_EQ(remote_.begun_[index].to, (100 + index) * kChunk);
    EXPECT_EQ(remote_.begun_[index].bytes, kChunk);
    EXPECT_EQ(remote_.begun_[index].key, 7U);
  }
  EXPECT_TRUE(written_.empty()) << "a slot is free while the device reads it";
  remote_.ends_ = 2;
  writes_.await_some(milliseconds(0), &written_);
  EXPECT_EQ(offsets(written_), (Offsets{0, 1}));
  EXPECT_TRUE(writes_.under_way());
  remote_.ends_ = 1;
  writes_.await_all(&written_);
  EXPECT_EQ(offsets(written_), (Offsets{0, 1, 2}));
  EXPECT_FALSE(writes_.under_way());
  EXPECT_FALSE(writes_.has_failed());
  writes_.forget(1);
  EXPECT_EQ(writes_.remembered(), 0U);
}

TEST_F(BulkWritesTest, FailureLeavesWhatWasNotWrittenInOrder) {
  ASSERT_TRUE(writes_.open(1, destination(3)));
  ASSERT_TRUE(writes_.open(2, destination(2)));
  for (std::uint64_t index = 0; index < 3; ++index) write(1, index, 3);
  write(2, 0, 2);
  remote_.ends_ = 1;
  writes_.await_some(milliseconds(0), &written_);
  remote_.give_up();  // As another thread does that finds the failure.
  writes_.await_all(&written_);
  EXPECT_TRUE(writes_.has_failed());
  EXPECT_EQ(offsets(written_), (Offsets{0}));
  const BulkWrites::Chunks left = writes_.take_failed();
  EXPECT_EQ(offsets(left), (Offsets{1, 2, 0}));
  EXPECT_FALSE(writes_.under_way());
  // The client learns once how many bytes it has, and nothing where it has none.
  const auto note = writes_.written_before(left[0].header);
  ASSERT_TRUE(note.has_value());
  EXPECT_EQ(note->transfer, 1U);
  EXPECT_EQ(note->offset, kChunk);
  EXPECT_EQ(note->total, 3 * kChunk);
  EXPECT_EQ(note->watermark, 0U) << "it is not complete";
  EXPECT_FALSE(writes_.written_before(left[1].header).has_value());
  EXPECT_FALSE(writes_.written_before(left[2].header).has_value());
  EXPECT_FALSE(writes_.open(3, destination(2)));
}

// The last write may end right although the carrier is given up meanwhile.
TEST_F(BulkWritesTest, WritesThatEndedRightBeforeTheFailureStay) {
  ASSERT_TRUE(writes_.open(1, destination(2)));
  write(1, 0, 2);
  write(1, 1, 2);
  remote_.give_up();
  remote_.ends_ = 2;
  writes_.await_all(&written_);
  EXPECT_EQ(offsets(written_), (Offsets{0, 1}));
  EXPECT_TRUE(writes_.take_failed().empty());
}

TEST_F(BulkWritesTest, RefusedPostFailsAndKeepsTheChunk) {
  remote_.refused_from_ = 1;
  ASSERT_TRUE(writes_.open(1, destination(2)));
  write(1, 0, 2);
  write(1, 1, 2);
  EXPECT_TRUE(writes_.has_failed());
  EXPECT_TRUE(remote_.gave_up_);
  EXPECT_EQ(offsets(writes_.take_failed()), (Offsets{0, 1}));
}

TEST_F(BulkWritesTest, DeviceWithShortMessagesWritesChunkInParts) {
  remote_.bytes_max_ = kChunk / 2 - 1;
  ASSERT_TRUE(writes_.open(1, destination(1)));
  write(1, 0, 1);
  ASSERT_EQ(remote_.begun_.size(), 3U);
  EXPECT_EQ(remote_.begun_[1].to, 100 * kChunk + kChunk / 2 - 1);
  EXPECT_EQ(remote_.begun_[2].bytes, 2U);
  remote_.ends_ = 2;
  writes_.await_some(milliseconds(0), &written_);
  EXPECT_TRUE(written_.empty()) << "two bytes are missing";
  remote_.give_up();
  writes_.await_all(&written_);
  EXPECT_EQ(offsets(writes_.take_failed()), (Offsets{0})) << "a part of it was written";
}

TEST_F(BulkWritesTest, FullDeviceIsWaitedFor) {
  remote_.most_ = 1;
  remote_.ends_ = 2;
  ASSERT_TRUE(writes_.open(1, destination(3)));
  for (std::uint64_t index = 0; index < 3; ++index) write(1, index, 3);
  EXPECT_EQ(offsets(written_), (Offsets{0, 1}));
  EXPECT_EQ(remote_.begun_.size(), 3U);
}

TEST_F(BulkWritesTest, SilentDeviceEndsTheWaitInTime) {
  remote_.loses_ = true;
  ASSERT_TRUE(writes_.open(1, destination(1)));
  write(1, 0, 1);
  const auto before = std::chrono::steady_clock::now();
  writes_.await_all(&written_);
  EXPECT_LT(std::chrono::steady_clock::now() - before,
            BulkWrites::kWriteDeadline + BulkWrites::kEndDeadline * 2);
  EXPECT_EQ(offsets(writes_.take_failed()), (Offsets{0}));
}

TEST_F(BulkWritesTest, StopEndsTheWait) {
  ASSERT_TRUE(writes_.open(1, destination(1)));
  write(1, 0, 1);
  writes_.stop();
  const auto before = std::chrono::steady_clock::now();
  writes_.await_all(&written_);
  EXPECT_LT(std::chrono::steady_clock::now() - before, BulkWrites::kWriteDeadline);
  EXPECT_TRUE(writes_.has_failed());
}

TEST_F(BulkWritesTest, NumberIsUsedOnce) {
  ASSERT_TRUE(writes_.open(1, destination(2)));
  EXPECT_FALSE(writes_.open(1, destination(2)));
  writes_.forget(1);
  EXPECT_TRUE(writes_.open(1, destination(2)));
}

TEST_F(BulkWritesTest, NothingIsWrittenWithoutMemoryOrDevices) {
  remote_.refuses_ = true;
  EXPECT_FALSE(writes_.open(1, destination(2)));
  remote_.refuses_ = false;
  EXPECT_FALSE(writes_.open(1, destination(2))) << "it is asked once";
  EXPECT_EQ(writes_.why_refused(), "no memory");
  PlayedMemory sends;
  sends.writes_ = false;
  BulkWrites plain(&sends, staging_);
  EXPECT_FALSE(plain.open(1, destination(2)));
  BulkWrites none(nullptr, staging_);
  EXPECT_FALSE(none.open(1, destination(2)));
}

}  // namespace
}  // namespace gpurun::server
