// Lent memory: an allocation is lent once and as a whole, within bounds, until it ends or the
// carrier fails. What is refused is counted, and not asked for again.
#include "client/bulk/lent_memory.h"

#include <gtest/gtest.h>

#include <set>

namespace gpurun::client {
namespace {

class CountedMemory final : public transport::RemoteMemory {
 public:
  bool works() const noexcept override { return works_; }
  Result<std::uint32_t> lend(ByteView) override {
    ++asked_;
    if (refuses_) return Status(Code::kResourceExhausted, "too much is locked");
    lent_.insert(++last_);
    return last_;
  }
  Result<std::uint32_t> lend_for_writing(MutableBytes) override {
    lent_.insert(++last_);
    ++asked_to_write_;
    return last_;
  }
  void take_back(std::uint32_t key) noexcept override { EXPECT_EQ(lent_.erase(key), 1U); }
  Status enroll(MutableBytes) override { return {}; }
  void withdraw() noexcept override {}
  std::size_t read_bytes_max() const noexcept override { return 1; }
  Began begin_read(const Read&) noexcept override { return Began::kFailed; }
  std::size_t await_reads(std::span<Ended>, Deadline) noexcept override { return 0; }
  void give_up() noexcept override { works_ = false; }

  bool works_ = true;
  bool refuses_ = false;
  unsigned asked_ = 0;
  unsigned asked_to_write_ = 0;
  std::uint32_t last_ = 100;
  std::set<std::uint32_t> lent_;
};

// Nothing touches it.
ByteView at(std::uint64_t address, std::uint64_t bytes) {
  return byte_view(reinterpret_cast<const void*>(address), bytes);
}

class LentMemoryTest : public ::testing::Test {
 protected:
  CountedMemory remote_;
  LentMemory lent_{&remote_};
};

TEST_F(LentMemoryTest, AllocationIsLentOnce) {
  for (int times = 0; times < 3; ++times) EXPECT_TRUE(lent_.lend(at(0x10000, 0x4000)));
  EXPECT_EQ(remote_.asked_, 1U);
  EXPECT_EQ(lent_.key_of(at(0x10000, 0x4000)), 101U);
  EXPECT_EQ(lent_.key_of(at(0x13fff, 1)), 101U);
  EXPECT_FALSE(lent_.key_of(at(0x13fff, 2)).has_value());
  EXPECT_FALSE(lent_.key_of(at(0xffff, 2)).has_value());
  EXPECT_FALSE(lent_.key_of(at(0x14000, 1)).has_value());
  EXPECT_EQ(lent_.refused().copies, 0U);
}

TEST_F(LentMemoryTest, EachRightIsLentByItself) {
  LentMemory to_write(&remote_, LentMemory::Right::kWrite);
  ASSERT_TRUE(to_write.lend(at(0x10000, 0x1000)));
  EXPECT_EQ(remote_.asked_, 0U) << "memory for writes may be read";
  EXPECT_FALSE(lent_.key_of(at(0x10000, 1)).has_value());
  ASSERT_TRUE(lent_.lend(at(0x10000, 0x1000)));
  EXPECT_EQ(remote_.asked_to_write_, 1U) << "memory for reads may be written";
  to_write.stop();
  EXPECT_EQ(remote_.lent_.size(), 1U);
  EXPECT_FALSE(to_write.lend(at(0x10000, 0x1000)));
  EXPECT_EQ(to_write.refused().reason, "the server could not write an earlier copy");
  EXPECT_TRUE(lent_.lend(at(0x10000, 0x1000)));
}

// The device reaches the memory from then on, whether it was lent before or is asked for later.
TEST_F(LentMemoryTest, BarredMemoryGivesNoKeyUntilItEnds) {
  ASSERT_TRUE(lent_.lend(at(0x10000, 0x4000)));
  lent_.bar(at(0x11000, 0x1000), false);
  EXPECT_EQ(remote_.lent_.size(), 1U) << "a copy may be under way";
  EXPECT_FALSE(lent_.key_of(at(0x10000, 1)).has_value());
  EXPECT_FALSE(lent_.lend(at(0x10000, 0x4000)));
  EXPECT_EQ(lent_.refused().reason, "the device reaches the memory");
  lent_.bar(at(0x11000, 0x1000), true);
  EXPECT_TRUE(remote_.lent_.empty());
  lent_.bar(at(0x20000, 0x1000), false);
  EXPECT_FALSE(lent_.lend(at(0x20000, 0x1000)));
  EXPECT_EQ(remote_.asked_, 1U);
  lent_.take_back(at(0x10000, 0x11000));
  EXPECT_TRUE(lent_.lend(at(0x10000, 0x4000)));
  EXPECT_TRUE(lent_.lend(at(0x20000, 0x1000)));
}

TEST_F(LentMemoryTest, EndOfMemoryTakesItBack) {
  ASSERT_TRUE(lent_.lend(at(0x10000, 0x1000)));
  ASSERT_TRUE(lent_.lend(at(0x11000, 0x1000)));
  ASSERT_TRUE(lent_.lend(at(0x20000, 0x1000)));
  lent_.take_back(at(0x11000, 0x1000));
  EXPECT_FALSE(lent_.key_of(at(0x11000, 1)).has_value());
  EXPECT_TRUE(lent_.key_of(at(0x10000, 1)).has_value());
  lent_.take_back(at(0x10000, 0x20000));
  EXPECT_TRUE(remote_.lent_.empty());
  ASSERT_TRUE(lent_.lend(at(0x11000, 0x3000))) << "other memory at the same place";
}

TEST_F(LentMemoryTest, BoundsAreKept) {
  EXPECT_FALSE(lent_.lend(at(0x10000, LentMemory::kBytesMax + 1)));
  ASSERT_TRUE(lent_.lend(at(0x10000, LentMemory::kBytesMax)));
  EXPECT_FALSE(lent_.lend(at(0x1000, 1)));
  EXPECT_EQ(lent_.refused().copies, 2U);
  lent_.take_back(at(0x10000, LentMemory::kBytesMax));
  for (std::uint64_t i = 0; i < LentMemory::kRangesMax; ++i) {
    ASSERT_TRUE(lent_.lend(at(0x100000 + i * 0x1000, 0x1000)));
  }
  EXPECT_FALSE(lent_.lend(at(0x1000, 1)));
  EXPECT_EQ(lent_.refused().reason, "too many allocations are lent");
  lent_.take_back(at(0x100000, 0x1000));
  EXPECT_TRUE(lent_.lend(at(0x1000, 1)));
}

TEST_F(LentMemoryTest, RefusalIsCountedAndNotAskedForAgain) {
  remote_.refuses_ = true;
  for (int times = 0; times < 3; ++times) EXPECT_FALSE(lent_.lend(at(0x10000, 0x1000)));
  EXPECT_EQ(remote_.asked_, 1U);
  EXPECT_EQ(lent_.refused().copies, 3U);
  EXPECT_EQ(lent_.refused().reason, "too much is locked");
  EXPECT_FALSE(lent_.key_of(at(0x10000, 1)).has_value());
  lent_.take_back(at(0x10000, 0x1000));
  remote_.refuses_ = false;
  EXPECT_TRUE(lent_.lend(at(0x10000, 0x1000)));
}

TEST_F(LentMemoryTest, FailureTakesAllBack) {
  for (const bool here : {true, false}) {
    LentMemory lent(&remote_);
    remote_.works_ = true;
    ASSERT_TRUE(lent.lend(at(0x10000, 0x1000)));
    ASSERT_TRUE(lent.lend(at(0x20000, 0x1000)));
    if (here) {
      remote_.works_ = false;
      EXPECT_FALSE(lent.key_of(at(0x10000, 1)).has_value());
    } else {
      lent.stop();
    }
    EXPECT_TRUE(remote_.lent_.empty());
    EXPECT_FALSE(lent.lend(at(0x30000, 0x1000)));
    EXPECT_EQ(lent.refused().copies, 1U);
  }
}

TEST_F(LentMemoryTest, SessionWithoutRdmaLendsNothing) {
  LentMemory none(nullptr);
  EXPECT_FALSE(none.lend(at(0x10000, 0x1000)));
  EXPECT_FALSE(none.key_of(at(0x10000, 1)).has_value());
  none.take_back(at(0x10000, 0x1000));
  none.stop();
  EXPECT_EQ(none.refused().copies, 0U);
}

}  // namespace
}  // namespace gpurun::client
