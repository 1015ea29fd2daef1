// SlotTable and IndexPool: a key finds its own slot and no other, also while the table grows. No
// key reaches outside the table, and an index rests before it is used again.
#include "base/slot_table.h"

#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <thread>
#include <vector>

namespace gpurun {
namespace {

struct Slot {
  std::atomic<std::uint64_t> owner{0};
  std::atomic<std::uint64_t> number{0};
};

constexpr std::size_t kCapacity = 1024;
constexpr std::size_t kChunkSlots = 16;
using Table = SlotTable<Slot, kCapacity, kChunkSlots>;

constexpr std::uint64_t key_of(std::uint64_t generation, std::uint64_t index) {
  return generation * kCapacity + index;
}

void clear(Slot& slot) { slot.number.store(0, std::memory_order_relaxed); }

TEST(SlotTable, UnknownKeyIsNotFound) {
  Table table;
  for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1}, key_of(1, kCapacity - 1),
                                  std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    EXPECT_EQ(table.find(key), nullptr) << key;
    EXPECT_EQ(table.at(Table::index_of(key)), nullptr) << key;
  }
  ASSERT_NE(table.claim(key_of(1, 3), clear), nullptr);
  EXPECT_EQ(table.find(key_of(1, 2)), nullptr) << "a free slot in a chunk that is made";
  EXPECT_EQ(table.find(key_of(2, 3)), nullptr);
  EXPECT_EQ(table.at(kChunkSlots), nullptr) << "only the first chunk is made";
}

TEST(SlotTable, KeyZeroHasNoSlot) {
  Table table;
  ASSERT_NE(table.claim(key_of(1, 1), clear), nullptr);
  ASSERT_NE(table.at(0), nullptr);
  EXPECT_EQ(table.at(0)->owner.load(), 0u);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.claim(0, clear), nullptr);
}

TEST(SlotTable, SlotStartsZeroedAndKeepsItsAddress) {
  Table table;
  std::vector<Slot*> slots;
  for (std::uint64_t index = 0; index < kCapacity; ++index) {
    Slot* const slot = table.claim(key_of(1, index), [](Slot&) {});
    ASSERT_NE(slot, nullptr);
    EXPECT_EQ(slot->number.load(), 0u);
    slot->number.store(index);
    slots.push_back(slot);
  }
  for (std::uint64_t index = 0; index < kCapacity; ++index) {
    EXPECT_EQ(table.find(key_of(1, index)), slots[index]);
    EXPECT_EQ(table.at(index), slots[index]);
    EXPECT_EQ(slots[index]->number.load(), index);
  }
}

TEST(SlotTable, NewerKeyReplacesOlderKeyOfSameIndex) {
  Table table;
  const std::uint64_t older = key_of(7, kCapacity - 1);
  const std::uint64_t newer = key_of(std::uint64_t{1} << 50, kCapacity - 1);
  Slot* const slot = table.claim(older, clear);
  ASSERT_NE(slot, nullptr);
  slot->number.store(5);
  EXPECT_EQ(table.claim(older, clear), slot) << "its own slot";
  EXPECT_EQ(slot->number.load(), 5u) << "and nothing is cleared";
  EXPECT_EQ(table.claim(newer, clear), slot);
  EXPECT_EQ(slot->number.load(), 0u);
  EXPECT_EQ(table.find(older), nullptr);
  EXPECT_EQ(table.find(newer), slot);
  slot->owner.store(0, std::memory_order_release);
  EXPECT_EQ(table.find(newer), nullptr);
}

TEST(SlotTable, LookupsSucceedWhileTableGrows) {
  Table table;
  std::atomic<std::uint64_t> claimed{0};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&table, &claimed, &wrong] {
      std::uint64_t known = 0;
      while (known < kCapacity) {
        known = claimed.load(std::memory_order_acquire);
        for (std::uint64_t index = 0; index < kCapacity; ++index) {
          const Slot* const slot = table.find(key_of(3, index));
          if (slot == nullptr ? index < known : slot->number.load() != index) wrong.fetch_add(1);
          if (table.find(key_of(2, index)) != nullptr) wrong.fetch_add(1);
        }
      }
    });
  }
  for (std::uint64_t index = 0; index < kCapacity; ++index) {
    table.claim(key_of(3, index),
                [index](Slot& slot) { slot.number.store(index, std::memory_order_relaxed); });
    claimed.store(index + 1, std::memory_order_release);
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0u);
}

#if !defined(GPURUN_ASAN) && !defined(GPURUN_TSAN)  // Theirs end the process.
TEST(SlotTable, ClaimFailsWithoutMemory) {
  struct Huge {
    std::atomic<std::uint64_t> owner{0};
    std::byte bytes[std::size_t{1} << 40];
  };
  SlotTable<Huge, kCapacity, kCapacity> table;
  EXPECT_EQ(table.make(0), nullptr);
  EXPECT_EQ(table.claim(key_of(1, 1), [](Huge&) {}), nullptr);
  EXPECT_EQ(table.find(key_of(1, 1)), nullptr);
}
#endif

TEST(IndexPool, DelaysReuseOfReturnedIndex) {
  IndexPool<kCapacity, 4> pool;
  for (std::uint32_t index = 0; index < 6; ++index) EXPECT_EQ(pool.take(), index);
  for (std::uint32_t index = 0; index < 4; ++index) pool.give_back(index);
  EXPECT_EQ(pool.take(), 6u) << "four rest";
  pool.give_back(4);
  EXPECT_EQ(pool.take(), 0u) << "the oldest, when four others have come back later";
  EXPECT_EQ(pool.take(), 7u);
  EXPECT_EQ(pool.used(), 8u);
}

TEST(IndexPool, EnforcesExactCapacity) {
  IndexPool<kCapacity, 4> pool;
  for (std::uint32_t index = 0; index < kCapacity; ++index) EXPECT_EQ(pool.take(), index);
  EXPECT_EQ(pool.take(), std::nullopt);
  pool.give_back(9);
  EXPECT_EQ(pool.take(), 9u) << "no new index is left, so this one need not rest";
  EXPECT_EQ(pool.take(), std::nullopt);
  EXPECT_EQ(pool.used(), kCapacity);
}

TEST(IndexPool, UndoneTakeReturnsSameIndexAgain) {
  IndexPool<kCapacity, 4> pool;
  EXPECT_EQ(pool.take(), 0u);
  EXPECT_EQ(pool.take(), 1u);
  pool.undo_take();
  EXPECT_EQ(pool.used(), 1u);
  EXPECT_EQ(pool.take(), 1u);
}

TEST(IndexPool, NeverHandsOutLiveIndex) {
  IndexPool<kCapacity, 4> pool;
  std::deque<std::uint32_t> taken;
  std::set<std::uint32_t> alive;
  for (int round = 0; round < 20'000; ++round) {
    const auto index = pool.take();
    ASSERT_TRUE(index.has_value());
    ASSERT_LT(*index, kCapacity);
    ASSERT_TRUE(alive.insert(*index).second) << *index;
    taken.push_back(*index);
    // Between 1 and 40 live, so that the pool's list of free indexes grows and is emptied.
    const std::size_t keep = round % 100 < 60 ? 40 : 1;
    while (taken.size() > keep) {
      alive.erase(taken.front());
      pool.give_back(taken.front());
      taken.pop_front();
    }
  }
  EXPECT_LE(pool.used(), 46u);
}

}  // namespace
}  // namespace gpurun
