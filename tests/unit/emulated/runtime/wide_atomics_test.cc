// Wide atomics: 16 bytes change together, whichever way they change.
#include "emulated/runtime/wide_atomics.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace gpurun::emulated {
namespace {

using CompareAndExchange = WideWords (*)(WideWords*, WideWords, WideWords);

std::vector<CompareAndExchange> ways() {
  std::vector<CompareAndExchange> all{wide_cas_by_lock};
  if (has_wide_instruction()) all.push_back(wide_cas_by_instruction);
  return all;
}

TEST(WideAtomics, OnlyTheExpectedWordsAreReplaced) {
  for (const CompareAndExchange exchange : ways()) {
    WideWords cell{1, 2};
    EXPECT_EQ(exchange(&cell, {1, 3}, {7, 8}), (WideWords{1, 2}));
    EXPECT_EQ(exchange(&cell, {0, 2}, {7, 8}), (WideWords{1, 2}));
    EXPECT_EQ(cell, (WideWords{1, 2}));
    EXPECT_EQ(exchange(&cell, {1, 2}, {7, 8}), (WideWords{1, 2}));
    EXPECT_EQ(cell, (WideWords{7, 8}));
  }
}

TEST(WideAtomics, NoUpdateOfManyThreadsIsLost) {
  constexpr int kThreads = 4;
  // Long enough that the threads meet, also on a busy machine.
  constexpr std::uint64_t kUpdates = 500000;
  for (const CompareAndExchange exchange : ways()) {
    WideWords cell;
    std::atomic<int> started{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&cell, &started, exchange] {
        ++started;
        while (started < kThreads) std::this_thread::yield();
        WideWords seen;
        for (std::uint64_t done = 0; done < kUpdates;) {
          const WideWords found = exchange(&cell, seen, {seen.low + 1, seen.high + 2});
          if (found == seen) ++done;
          seen = found;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(cell, (WideWords{kThreads * kUpdates, 2 * kThreads * kUpdates}));
  }
}

// A reader never sees one word of an exchange without the other.
TEST(WideAtomics, LoadsReturnBothWordsOfOneStore) {
  using Load = WideWords (*)(const WideWords*);
  struct Way {
    CompareAndExchange exchange;
    Load load;
  };
  std::vector<Way> all{{wide_cas_by_lock, wide_load_by_lock}};
  if (has_wide_instruction()) all.push_back({wide_cas_by_instruction, wide_load_by_instruction});
  constexpr std::uint64_t kUpdates = 500000;
  for (const Way& way : all) {
    WideWords cell;
    std::atomic<bool> started{false};
    std::thread writer([&] {
      while (!started) std::this_thread::yield();
      for (std::uint64_t i = 0; i < kUpdates; ++i) way.exchange(&cell, {i, ~i}, {i + 1, ~(i + 1)});
    });
    cell = {0, ~std::uint64_t{0}};
    started = true;
    std::uint64_t last = 0;
    bool whole = true, forward = true;
    while (last < kUpdates && whole && forward) {
      const WideWords seen = way.load(&cell);
      whole = seen.high == ~seen.low;
      forward = seen.low >= last;
      last = seen.low;
    }
    writer.join();
    EXPECT_TRUE(whole);
    EXPECT_TRUE(forward);
  }
}

// Compiled code finds the functions by these names.
TEST(WideAtomics, FunctionsOfCompiledCodeReturnTheWordsBefore) {
  using Cas = void (*)(WideWords*, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                       std::uint64_t*);
  using Exchange = void (*)(WideWords*, std::uint64_t, std::uint64_t, std::uint64_t*);
  using Load = void (*)(const WideWords*, std::uint64_t*);
  Cas cas = nullptr;
  Exchange exchange = nullptr;
  Load load = nullptr;
  for (const NativeFunction& function : wide_atomic_functions()) {
    const std::string name = function.name;
    if (name == "gpurun_wide_cas") cas = reinterpret_cast<Cas>(function.address);
    if (name == "gpurun_wide_exchange") exchange = reinterpret_cast<Exchange>(function.address);
    if (name == "gpurun_wide_load") load = reinterpret_cast<Load>(function.address);
  }
  ASSERT_NE(cas, nullptr);
  ASSERT_NE(exchange, nullptr);
  ASSERT_NE(load, nullptr);
  WideWords cell{1, 2};
  std::uint64_t before[2] = {};
  cas(&cell, 1, 2, 3, 4, before);
  EXPECT_EQ(before[0], 1u);
  EXPECT_EQ(before[1], 2u);
  exchange(&cell, 5, 6, before);
  EXPECT_EQ(before[0], 3u);
  EXPECT_EQ(before[1], 4u);
  EXPECT_EQ(cell, (WideWords{5, 6}));
  load(&cell, before);
  EXPECT_EQ(before[0], 5u);
  EXPECT_EQ(before[1], 6u);
}

}  // namespace
}  // namespace gpurun::emulated
