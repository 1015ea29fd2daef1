// BulkOut: chunks of copies out are requested several at a time, and no copy waits that could go
// on.
#include "server/bulk/bulk_out.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "protocol/limits.h"

namespace gpurun::server {
namespace {

constexpr std::size_t kChunk = limits::kBulkChunkBytes;
constexpr std::size_t kChunksAheadMax = kBytesAheadMax / kChunk;
constexpr std::size_t kChunksAheadMin = kBytesAheadMin / kChunk;
constexpr std::uint64_t kTransfer = 1, kCall = 7;

class BulkOutTest : public ::testing::Test {
 protected:
  // A fast device: each requested chunk arrives. Returns their number.
  std::size_t copy_what_may_be() {
    std::size_t count = 0;
    for (BulkOut::Chunk chunk = out_.next(kTransfer); chunk.bytes != nullptr;
         chunk = out_.next(kTransfer), ++count) {
      out_.copied(kTransfer, chunk, 0);
      unsent_.push_back(chunk.bytes);
    }
    return count;
  }
  // A busy device: returns the requested chunks, which have not arrived.
  std::vector<BulkOut::Chunk> ask_for_all() {
    std::vector<BulkOut::Chunk> asked;
    for (BulkOut::Chunk chunk = out_.next(kTransfer); chunk.bytes != nullptr;
         chunk = out_.next(kTransfer)) {
      asked.push_back(chunk);
    }
    return asked;
  }
  // The next chunk has been sent. Returns whether a waiting copy may go on.
  bool send_one() {
    std::byte* const slot = unsent_.front();
    unsent_.pop_front();
    return out_.gone(kTransfer, slot, kChunk);
  }

  Staging staging_{4 * Staging::kPartBytes};
  int rooms_ = 0;
  BulkOut out_{staging_,
               {&rooms_, [](void* user) { ++*static_cast<int*>(user); },
                [](void*, protocol::FrameKind, const protocol::BulkHeader&, ByteView, unsigned) {}},
               false};
  std::deque<std::byte*> unsent_;
};

TEST_F(BulkOutTest, RequestsSeveralChunksAtATime) {
  ASSERT_EQ(out_.open(kTransfer, kCall, 64 * kChunk), 0);
  EXPECT_EQ(copy_what_may_be(), kChunksAheadMax);
  for (int turn = 0; turn < 3; ++turn) {
    for (std::size_t left = kChunksAheadMax - 1; left > kChunksAheadMin; --left) {
      EXPECT_FALSE(send_one()) << left << " are left";
    }
    EXPECT_TRUE(send_one());
    EXPECT_EQ(copy_what_may_be(), kChunksAheadMax - kChunksAheadMin);
  }
  EXPECT_EQ(rooms_, 0);
}

// Unsent data is counted in bytes, so more small copies than large ones may be ahead.
TEST_F(BulkOutTest, LimitsUnsentSmallCopiesByBytes) {
  constexpr std::size_t kSmall = kBytesAheadMax / 16;
  std::size_t count = 0;
  for (;; ++count) {
    const std::uint64_t transfer = count + 1;
    ASSERT_EQ(out_.open(transfer, transfer, kSmall), 0);
    const BulkOut::Chunk chunk = out_.next(transfer);
    if (chunk.bytes == nullptr) break;
    out_.copied(transfer, chunk, 0);
    unsent_.push_back(chunk.bytes);
  }
  EXPECT_EQ(count, 16U);
  for (std::uint64_t sent = 1; (count - sent) * kSmall > kBytesAheadMin; ++sent) {
    EXPECT_FALSE(out_.gone(sent, unsent_[sent - 1], kSmall));
  }
  const std::size_t next = count - kBytesAheadMin / kSmall;
  EXPECT_TRUE(out_.gone(next, unsent_[next - 1], kSmall));
}

// A short copy uses a whole slot.
TEST_F(BulkOutTest, TinyCopiesLeaveSlotsFree) {
  const std::size_t all = staging_.free_slots();
  for (std::uint64_t transfer = 1;; ++transfer) {
    ASSERT_EQ(out_.open(transfer, transfer, 4), 0);
    const BulkOut::Chunk chunk = out_.next(transfer);
    if (chunk.bytes == nullptr) break;
    out_.copied(transfer, chunk, 0);
  }
  EXPECT_EQ(staging_.free_slots(), all - kBytesAheadMax / kBytesAheadOfChunk);
  EXPECT_GE(staging_.free_slots(), all / 2);
}

// The slots belong to another copy. Once one is free the copy goes on, whatever is still to be
// sent.
TEST_F(BulkOutTest, CopyResumesWithFirstFreeSlot) {
  ASSERT_EQ(out_.open(kTransfer, kCall, 64 * kChunk), 0);
  std::vector<std::byte*> others;
  while (staging_.free_slots() > kChunksAheadMax - 1) others.push_back(out_.take_slot());
  EXPECT_EQ(copy_what_may_be(), kChunksAheadMax - 1);
  EXPECT_TRUE(send_one());
  EXPECT_EQ(copy_what_may_be(), 1U);
  EXPECT_EQ(rooms_, 0);
  out_.give_slot(others.back());
  EXPECT_EQ(rooms_, 1);
}

// A returned slot wakes once. Afterwards the copy waits for sent chunks, as before.
TEST_F(BulkOutTest, ReturnedSlotWakesWaitingCopyOnce) {
  ASSERT_EQ(out_.open(kTransfer, kCall, 64 * kChunk), 0);
  std::vector<std::byte*> others;
  while (staging_.free_slots() > kChunksAheadMax - 1) others.push_back(out_.take_slot());
  copy_what_may_be();
  for (std::byte* slot : others) out_.give_slot(slot);
  EXPECT_EQ(rooms_, 1);
  EXPECT_EQ(copy_what_may_be(), 1U);
  EXPECT_FALSE(send_one());
}

// A failed chunk lets its copy and waiting copies go on, without anything being sent.
TEST_F(BulkOutTest, FailedChunkResumesCopiesAndFreesSlot) {
  ASSERT_EQ(out_.open(kTransfer, kCall, 64 * kChunk), 0);
  const std::vector<BulkOut::Chunk> asked = ask_for_all();
  const std::size_t free = staging_.free_slots();
  out_.copied(kTransfer, asked.front(), 700);
  EXPECT_EQ(rooms_, 1);
  EXPECT_EQ(staging_.free_slots(), free + 1);
}

// Many chunks arrive at the end of a kernel. Until then none is left to be sent.
TEST_F(BulkOutTest, CopyBehindKernelResumesWithFirstChunk) {
  ASSERT_EQ(out_.open(kTransfer, kCall, 64 * kChunk), 0);
  const std::vector<BulkOut::Chunk> asked = ask_for_all();
  ASSERT_EQ(asked.size(), kChunksAskedMax);
  out_.copied(kTransfer, asked.front(), 0);
  EXPECT_EQ(rooms_, 1);
  EXPECT_NE(out_.next(kTransfer).bytes, nullptr);
}

// Copies over several connections.
class BulkOutSpreadTest : public ::testing::Test {
 protected:
  using Kind = protocol::FrameKind;
  struct Said {
    Kind kind;
    std::uint64_t transfer, watermark;
    bool operator==(const Said&) const = default;
  };
  static constexpr unsigned kLanes = 8;
  static constexpr std::uint64_t kOther = 2;

  void open(std::uint64_t transfer, std::uint64_t bytes, unsigned lanes) {
    ASSERT_EQ(out_.open(transfer, transfer, bytes, lanes), 0);
  }
  // Requests up to `most` chunks, which the device brings with `result`. Returns how many could be
  // requested.
  std::size_t copy(std::uint64_t transfer, std::size_t most, int result = 0) {
    std::size_t count = 0;
    for (; count < most; ++count) {
      const BulkOut::Chunk chunk = out_.next(transfer);
      if (chunk.bytes == nullptr) break;
      out_.copied(transfer, chunk, result);
    }
    return count;
  }

  Staging staging_{kStagingOutBytes};
  std::vector<Said> said_;
  BulkOut out_{staging_,
               {&said_, [](void*) {},
                [](void* user, Kind kind, const protocol::BulkHeader& header, ByteView, unsigned) {
                  static_cast<std::vector<Said>*>(user)->push_back(
                      {kind, header.transfer, header.watermark});
                }},
               true};
};

// Otherwise the client would drop the chunks that are on their way, and wait for their number for
// ever.
TEST_F(BulkOutSpreadTest, FailureAfterLastChunkDoesNotAbandonCopy) {
  open(kTransfer, 2 * kChunk, kLanes);
  EXPECT_EQ(copy(kTransfer, 2), 2U);
  out_.end_call(kTransfer, kTransfer, 2 * kChunk, 700);
  EXPECT_EQ(said_, (std::vector<Said>{{Kind::kChunk, kTransfer, 0}, {Kind::kChunk, kTransfer, 1}}));
}

// Later copies must not overtake the chunks that were sent.
TEST_F(BulkOutSpreadTest, AbandonedCopyAdvancesWatermark) {
  open(kTransfer, 3 * kChunk, kLanes);
  EXPECT_EQ(copy(kTransfer, 1), 1U);
  EXPECT_EQ(copy(kTransfer, 1, 700), 1U);
  out_.end_call(kTransfer, kTransfer, 3 * kChunk, 700);
  open(kOther, 2 * kChunk, kLanes);
  EXPECT_EQ(copy(kOther, 1), 1U);
  EXPECT_EQ(said_, (std::vector<Said>{{Kind::kChunk, kTransfer, 0},
                                      {Kind::kChunkAbandoned, kTransfer, 1},
                                      {Kind::kChunk, kOther, 1}}));
  EXPECT_EQ(out_.watermark(), 1U);
}

// The first copy may have two chunks ahead for each connection. A copy without chunks on their way
// still gets its turn.
TEST_F(BulkOutSpreadTest, CopyFarAheadDoesNotBlockOtherCopies) {
  open(kTransfer, 64 * kChunk, kLanes);
  EXPECT_EQ(copy(kTransfer, 64), kChunksAheadMax + 2 * (kLanes - 1));
  open(kOther, 4 * kChunk, 1);
  EXPECT_EQ(copy(kOther, 4), 1U);
}

// The device has not reached any of them.
TEST_F(BulkOutSpreadTest, CopiesBehindKernelsLeaveSlotsFree) {
  const std::size_t all = staging_.free_slots();
  for (std::uint64_t transfer = 1; transfer <= 6; ++transfer) {
    open(transfer, 64 * kChunk, kLanes);
    while (out_.next(transfer).bytes != nullptr) {
    }
  }
  EXPECT_GT(staging_.free_slots(), all / 4);
}

}  // namespace
}  // namespace gpurun::server
