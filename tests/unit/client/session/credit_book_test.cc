// CreditBook: the client's allocator of device memory never gives out memory that lives or may
// still be in use. It loses nothing, merges free ranges, and returns only pieces that nothing can
// use.
#include "client/session/credit_book.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "protocol/limits.h"

namespace gpurun::client {
namespace {

constexpr std::uint64_t kBase = std::uint64_t{0x2000} << 32;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr Handle kContext = 7, kOther = 8;

TEST(FreeRanges, TakesBestFitAndMergesAdjacentRanges) {
  FreeRanges ranges;
  ranges.give(0x1000, 0x1000);
  const std::uint64_t a = ranges.take(0x100), b = ranges.take(0x200), c = ranges.take(0x100);
  ASSERT_TRUE(a == 0x1000 && b == 0x1100 && c == 0x1300);
  ranges.give(a, 0x100);
  ranges.give(c, 0x100);  // Merges with the range behind it.
  EXPECT_EQ(ranges.count(), 2u);
  EXPECT_EQ(ranges.take(0x100), a);  // The gap, not the rest.
  ranges.give(a, 0x100);
  ranges.give(b, 0x200);
  EXPECT_EQ(ranges.count(), 1u);
  EXPECT_EQ(ranges.largest(), 0x1000u);
  EXPECT_EQ(ranges.take(0x1001), 0u);
  EXPECT_EQ(ranges.take(0x1000), 0x1000u);
  EXPECT_EQ(ranges.largest(), 0u);
  ranges.give(0x1000, 0x1000);
  ranges.remove(0x1400, 0x400);
  EXPECT_EQ(ranges.count(), 2u);
  EXPECT_EQ(ranges.take(0x801), 0u);
  EXPECT_EQ(ranges.take(0x800), 0x1800u);
  EXPECT_EQ(ranges.take(0x400), 0x1000u);
}

TEST(CreditBook, AllocatesOnlyWithinValidPieces) {
  CreditBook book;
  EXPECT_EQ(book.allocate(1), 0u);
  ASSERT_TRUE(book.add_piece(kBase, kMiB));
  EXPECT_FALSE(book.add_piece(kBase + kMiB / 2, kMiB));
  EXPECT_FALSE(book.add_piece(kBase - kMiB / 2, kMiB));
  EXPECT_FALSE(book.add_piece(0, kMiB));
  EXPECT_FALSE(book.add_piece(kBase + kMiB + 1, kMiB));
  EXPECT_FALSE(book.add_piece(~std::uint64_t{511}, kMiB));
  EXPECT_EQ(book.allocate(kMiB + 1), 0u);
  EXPECT_EQ(book.allocate(~std::uint64_t{0}), 0u);
  for (std::uint64_t i = 0; i < kMiB / 512; ++i) ASSERT_EQ(book.allocate(1), kBase + i * 512);
  EXPECT_EQ(book.allocate(1), 0u);
  EXPECT_EQ(book.idle_bytes(), 0u);
}

TEST(CreditBook, FreedMemoryStaysQuarantinedUntilTicketIsReleased) {
  CreditBook book;
  ASSERT_TRUE(book.add_piece(kBase, kMiB));
  const std::uint64_t address = book.allocate(kMiB);
  book.quarantine(1, kContext, address, kMiB);
  EXPECT_EQ(book.live_bytes(), 0u);
  EXPECT_EQ(book.quarantined_bytes(), kMiB);
  EXPECT_EQ(book.allocate(512), 0u);
  book.release(2);
  EXPECT_EQ(book.allocate(512), 0u);
  book.release(1);
  EXPECT_EQ(book.quarantined_bytes(), 0u);
  EXPECT_EQ(book.allocate(kMiB), address);
  book.release(1);  // A ticket counts once.
  EXPECT_EQ(book.allocate(512), 0u);
}

TEST(CreditBook, ReturnsOnlyPiecesWithoutUsers) {
  CreditBook book;
  ASSERT_TRUE(book.add_piece(kBase, kMiB) && book.add_piece(kBase + kMiB, kMiB));
  const std::uint64_t low = book.allocate(kMiB), high = book.allocate(kMiB);
  EXPECT_EQ(book.take_idle_piece(kContext, 0).bytes, 0u);
  book.quarantine(1, kOther, high, kMiB);
  EXPECT_EQ(book.take_idle_piece(kContext, 0).bytes, 0u);   // Another context may still use it.
  EXPECT_EQ(book.take_idle_piece(kOther, kMiB).bytes, 0u);  // This much may be idle.
  book.quarantine(2, kContext, low, kMiB);
  EXPECT_EQ(book.quarantined_contexts().size(), 2u);
  EXPECT_EQ(book.take_idle_piece(kOther, 0).base, high);
  EXPECT_EQ(book.committed_bytes(), kMiB);
  // Another piece at the same place, to which the old ticket does not apply.
  ASSERT_TRUE(book.add_piece(kBase + kMiB, kMiB));
  EXPECT_EQ(book.allocate(kMiB), high);
  book.release(1);
  EXPECT_EQ(book.allocate(512), 0u);
  book.release(2);
  EXPECT_EQ(book.take_idle_piece(kContext, 0).base, low);
  EXPECT_EQ(book.idle_bytes(), 0u);
}

// At the product's bound, and one unit beyond it.
TEST(CreditBook, KeepsIdleMemoryUpToLimit) {
  CreditBook book;
  const std::uint64_t unit = CreditBook::kUnitBytes;
  ASSERT_TRUE(book.add_piece(kBase, limits::kIdleCreditBytesMax + unit));
  const std::uint64_t address = book.allocate(unit);
  ASSERT_TRUE(book.add_piece(kBase + 1024 * kMiB, unit));
  ASSERT_EQ(book.allocate(1), kBase + 1024 * kMiB);
  EXPECT_EQ(book.idle_bytes(), limits::kIdleCreditBytesMax);
  book.quarantine(1, kContext, kBase + 1024 * kMiB, 1);
  EXPECT_EQ(book.idle_bytes(), limits::kIdleCreditBytesMax + unit);
  EXPECT_EQ(book.take_idle_piece(kContext, limits::kIdleCreditBytesMax).bytes, unit);
  book.release(1);
  EXPECT_EQ(book.take_idle_piece(kContext, limits::kIdleCreditBytesMax).bytes, 0u);
  book.quarantine(2, kContext, address, unit);
  EXPECT_EQ(book.take_idle_piece(kContext, limits::kIdleCreditBytesMax).base, kBase);
}

TEST(CreditBook, MergesAdjacentPieces) {
  CreditBook book;
  ASSERT_TRUE(book.add_piece(kBase + kMiB, kMiB) && book.add_piece(kBase, kMiB));
  const std::uint64_t low = book.allocate(kMiB / 2), both = book.allocate(kMiB);
  ASSERT_TRUE(low == kBase && both == kBase + kMiB / 2);
  book.quarantine(1, kContext, both, kMiB);
  // Half of the quarantined memory goes with its piece, and half stays.
  EXPECT_EQ(book.take_idle_piece(kContext, 0).base, kBase + kMiB);
  EXPECT_EQ(book.take_idle_piece(kContext, 0).bytes, 0u);
  EXPECT_EQ(book.quarantined_bytes(), kMiB / 2);
  EXPECT_EQ(book.allocate(512), 0u);
  book.release(1);
  EXPECT_EQ(book.quarantined_bytes(), 0u);
  EXPECT_EQ(book.allocate(kMiB / 2), both);
  EXPECT_EQ(book.allocate(512), 0u);
}

// Compares with a model that knows each byte's owner.
TEST(CreditBook, NeverAllocatesLiveMemory) {
  CreditBook book;
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(book.add_piece(kBase + (i + i / 2) * kMiB, kMiB));  // Pairs of pieces touch.
  }
  std::map<std::uint64_t, std::uint64_t> lives;    // Start to bytes, quarantine included.
  std::map<std::uint64_t, std::uint64_t> waiting;  // Ticket to start.
  std::map<std::uint64_t, std::uint64_t> used;     // Allocations that are not freed.
  std::mt19937_64 random(1);
  std::uint64_t ticket = 0;
  for (int step = 0; step < 20'000; ++step) {
    switch (random() % 3) {
      case 0: {
        const std::uint64_t bytes = 1 + random() % (64 << 10);
        const std::uint64_t start = book.allocate(bytes);
        if (start == 0) break;
        ASSERT_EQ(start % CreditBook::kUnitBytes, 0u);
        const auto next = lives.lower_bound(start);
        ASSERT_TRUE(next == lives.end() || start + bytes <= next->first);
        ASSERT_TRUE(next == lives.begin() ||
                    std::prev(next)->first + std::prev(next)->second <= start);
        lives[start] = bytes;
        used[start] = bytes;
        break;
      }
      case 1: {
        const auto at = used.lower_bound(kBase + random() % (8 * kMiB));
        if (at == used.end()) break;
        book.quarantine(++ticket, kContext, at->first, at->second);
        waiting[ticket] = at->first;
        used.erase(at);
        break;
      }
      default: {
        if (waiting.empty()) break;
        const auto done = waiting.begin();
        book.release(done->first);
        lives.erase(done->second);
        waiting.erase(done);
      }
    }
  }
  for (const auto& [number, start] : waiting) book.release(number);
  for (const auto& [start, bytes] : used) book.quarantine(++ticket, kContext, start, bytes);
  while (ticket != 0) book.release(ticket--);
  EXPECT_EQ(book.idle_bytes(), 4 * kMiB);
  for (int i = 0; i < 4; ++i) EXPECT_NE(book.allocate(kMiB), 0u);
}

TEST(CreditBook, FindsWhereNewPieceExtendsIdleMemory) {
  CreditBook book;
  EXPECT_EQ(book.open_end(kMiB).base, 0u);
  ASSERT_TRUE(book.add_piece(kBase, 2 * kMiB));
  ASSERT_TRUE(book.add_piece(kBase + 2 * kMiB, 2 * kMiB));
  ASSERT_TRUE(book.add_piece(kBase + 6 * kMiB, 2 * kMiB));
  ASSERT_EQ(book.allocate(3 * kMiB), kBase);
  // One MiB is idle before the gap. Two MiB behind it are at the end of everything.
  EXPECT_EQ(book.open_end(3 * kMiB).base, kBase + 8 * kMiB);
  EXPECT_EQ(book.open_end(3 * kMiB).bytes, 2 * kMiB);
  ASSERT_EQ(book.allocate(2 * kMiB), kBase + 6 * kMiB);
  EXPECT_EQ(book.open_end(3 * kMiB).base, kBase + 4 * kMiB);
  EXPECT_EQ(book.open_end(3 * kMiB).bytes, kMiB);
  // The gap has no room for three more MiB.
  EXPECT_EQ(book.open_end(4 * kMiB).base, kBase + 8 * kMiB);
  EXPECT_EQ(book.open_end(4 * kMiB).bytes, 0u);
}

TEST(CreditBook, ReturnsSeparatePiecesWhenNothingLives) {
  CreditBook book;
  for (const std::uint64_t at : {0, 2, 6, 10}) {
    ASSERT_TRUE(book.add_piece(kBase + at * kMiB, 2 * kMiB));
  }
  const std::uint64_t lives = book.allocate(kMiB);
  EXPECT_EQ(book.take_piece_apart(kContext).bytes, 0u);
  book.quarantine(1, kContext, lives, kMiB);
  EXPECT_EQ(book.take_piece_apart(kContext).base, kBase + 10 * kMiB);
  EXPECT_EQ(book.take_piece_apart(kContext).base, kBase + 6 * kMiB);
  EXPECT_EQ(book.take_piece_apart(kContext).bytes, 0u);
  EXPECT_EQ(book.committed_bytes(), 4 * kMiB);
}

}  // namespace
}  // namespace gpurun::client
