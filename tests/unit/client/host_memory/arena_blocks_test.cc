// ArenaBlocks: allocations never overlap, never cross a block, and belong to one context. Blocks
// without allocations are given back.
#include "client/host_memory/arena_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace gpurun::client {
namespace {

using Block = ArenaBlocks::Block;
constexpr std::uint64_t kBase = std::uint64_t{0x1800} << 32;
constexpr std::uint64_t kSpan = std::uint64_t{1} << 32;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr Handle kFirst = 11, kSecond = 12;

// What the owner of the blocks does: it asks for a block where none has room.
std::uint64_t allocate(ArenaBlocks& blocks, Handle context, std::uint64_t bytes,
                       std::map<std::uint64_t, Block>* mapped = nullptr) {
  if (const std::uint64_t address = blocks.allocate(context, bytes); address != 0) return address;
  const auto block = blocks.propose(context, bytes);
  if (!block.has_value()) return 0;
  if (mapped != nullptr) (*mapped)[block->address] = *block;
  return blocks.add(*block, bytes);
}

TEST(ArenaBlocksTest, SmallAllocationsShareBlocksThatGrow) {
  ArenaBlocks blocks(kBase, kSpan);
  std::map<std::uint64_t, Block> mapped;
  for (int i = 0; i < 64; ++i) ASSERT_NE(allocate(blocks, kFirst, kMiB, &mapped), 0u);
  std::vector<std::uint64_t> sizes;
  for (const auto& [address, block] : mapped) sizes.push_back(block.bytes);
  EXPECT_EQ(sizes, (std::vector<std::uint64_t>{2 * kMiB, 4 * kMiB, 8 * kMiB, 16 * kMiB, 32 * kMiB,
                                               32 * kMiB}));
  EXPECT_EQ(blocks.mapped_bytes(), 94 * kMiB);
}

TEST(ArenaBlocksTest, LargeAllocationHasBlockOfItsOwn) {
  ArenaBlocks blocks(kBase, kSpan);
  const std::uint64_t address = allocate(blocks, kFirst, 64 * kMiB + 1);
  ASSERT_EQ(address, kBase);
  EXPECT_EQ(blocks.mapped_bytes(), 64 * kMiB + 4096);
  EXPECT_EQ(blocks.allocate(kFirst, 4096), 0u);
  const auto unused = blocks.release(address);
  ASSERT_TRUE(unused.has_value());
  EXPECT_EQ(unused->bytes, 64 * kMiB + 4096);
  // The addresses are in use until the block is unmapped.
  EXPECT_NE(blocks.propose(kFirst, kMiB)->address, address);
  blocks.give_back(*unused);
  EXPECT_EQ(blocks.propose(kFirst, 64 * kMiB)->address % ArenaBlocks::kBlockUnitBytes, 0u);
  EXPECT_EQ(blocks.mapped_bytes(), 0u);
}

TEST(ArenaBlocksTest, OneIdleBlockIsKept) {
  ArenaBlocks blocks(kBase, kSpan);
  const std::uint64_t first = allocate(blocks, kFirst, 2 * kMiB);
  const std::uint64_t second = allocate(blocks, kFirst, 4 * kMiB);
  EXPECT_FALSE(blocks.release(first).has_value());
  const auto unused = blocks.release(second);
  ASSERT_TRUE(unused.has_value());
  EXPECT_EQ(unused->address, second);
  EXPECT_EQ(blocks.allocate(kFirst, 2 * kMiB), first) << "from the block that was kept";
  // It is in use again, so another one may be kept.
  blocks.give_back(*unused);
  const std::uint64_t third = allocate(blocks, kFirst, kMiB);
  EXPECT_FALSE(blocks.release(third).has_value());
}

TEST(ArenaBlocksTest, ContextsShareNoBlock) {
  ArenaBlocks blocks(kBase, kSpan);
  ASSERT_NE(allocate(blocks, kFirst, 4096), 0u);
  EXPECT_EQ(blocks.allocate(kSecond, 4096), 0u);
  ASSERT_NE(allocate(blocks, kSecond, 4096), 0u);
  ASSERT_NE(allocate(blocks, kSecond, 16 * kMiB), 0u);
  const std::vector<Block> ended = blocks.take_context(kSecond);
  EXPECT_EQ(ended.size(), 2u);
  EXPECT_EQ(blocks.mapped_bytes(), 2 * kMiB);
  for (const Block& block : ended) {
    EXPECT_EQ(block.context, kSecond);
    EXPECT_FALSE(blocks.release(block.address).has_value()) << "ended with its context";
  }
  EXPECT_EQ(blocks.allocate(kSecond, 4096), 0u);
  EXPECT_NE(blocks.allocate(kFirst, 4096), 0u);
}

TEST(ArenaBlocksTest, AddressesInUseElsewhereAreAvoided) {
  ArenaBlocks blocks(kBase, 16 * kMiB);
  const auto first = blocks.propose(kFirst, kMiB);
  ASSERT_TRUE(first.has_value());
  blocks.avoid(*first);
  const auto second = blocks.propose(kFirst, kMiB);
  ASSERT_TRUE(second.has_value());
  EXPECT_GT(second->address, first->address + first->bytes);
  EXPECT_FALSE(blocks.was_used());
  blocks.give_back(*second);
  EXPECT_EQ(blocks.propose(kFirst, kMiB)->address, second->address);
  EXPECT_FALSE(blocks.propose(kFirst, 16 * kMiB).has_value()) << "no addresses are left";
}

TEST(ArenaBlocksTest, RandomAllocationsNeverOverlap) {
  std::mt19937 random(7);
  ArenaBlocks blocks(kBase, kSpan);
  std::map<std::uint64_t, Block> mapped;
  std::map<std::uint64_t, std::uint64_t> living;
  for (int i = 0; i < 20'000; ++i) {
    if (!living.empty() && random() % 2 == 0) {
      auto victim = living.lower_bound(kBase + random() % kSpan);
      if (victim == living.end()) victim = living.begin();
      const auto unused = blocks.release(victim->first);
      living.erase(victim);
      if (unused.has_value()) {
        const auto next = living.lower_bound(unused->address);
        ASSERT_TRUE(next == living.end() || next->first >= unused->address + unused->bytes)
            << "a block with an allocation was given back";
        mapped.erase(unused->address);
        blocks.give_back(*unused);
      }
      continue;
    }
    const std::uint64_t bytes = 1 + random() % (i % 10 == 0 ? 12 * kMiB : 200'000);
    const std::uint64_t address = allocate(blocks, kFirst + random() % 2, bytes, &mapped);
    if (address == 0) continue;
    ASSERT_EQ(address % ArenaBlocks::kUnitBytes, 0u);
    const auto next = living.lower_bound(address);
    ASSERT_TRUE(next == living.end() || next->first >= address + bytes);
    ASSERT_TRUE(next == living.begin() ||
                std::prev(next)->first + std::prev(next)->second <= address);
    const auto block = std::prev(mapped.upper_bound(address));
    ASSERT_LE(address + bytes, block->second.address + block->second.bytes);
    living[address] = bytes;
  }
  std::uint64_t sum = 0;
  for (const auto& [address, block] : mapped) sum += block.bytes;
  EXPECT_EQ(blocks.mapped_bytes(), sum);
}

}  // namespace
}  // namespace gpurun::client
