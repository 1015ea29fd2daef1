// Statistics: each number is the sum of all counts, from threads in parallel. When they are off,
// nothing is counted and no memory is used.
#include "client/stats/stats.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gpurun::client {
namespace {

using std::chrono::nanoseconds;

protocol::RecordHeader call(std::uint16_t opcode) {
  protocol::RecordHeader header;
  header.opcode = opcode;
  return header;
}

// A frame with `records` calls.
void count_batch(Stats& stats, std::uint64_t records, std::uint64_t bytes) {
  stats.count_batch(1, records, bytes, bytes);
}

TEST(Stats, SumsCountsAndKeepsLongestWaitOfAllThreads) {
  Stats stats(true);
  constexpr int kThreads = 4;
  constexpr int kEach = 1000;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&stats, thread] {
      for (int i = 0; i < kEach; ++i) {
        stats.count_entry(7);
        stats.count(call(7), 80, {});
        stats.count_fence({7, 0, 0, nanoseconds(thread * kEach + i)});
        stats.count_wait({7, 0, 0, nanoseconds(1)});
        count_batch(stats, 1, 80);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  constexpr std::uint64_t kAll = kThreads * kEach;
  const std::vector<Stats::Row> rows = stats.rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].opcode, 7);
  EXPECT_EQ(rows[0].entries, kAll);
  EXPECT_EQ(rows[0].calls, kAll);
  EXPECT_EQ(rows[0].fences, kAll);
  EXPECT_EQ(rows[0].waits, kAll);
  EXPECT_EQ(rows[0].record_bytes, 80 * kAll);
  EXPECT_EQ(rows[0].waited, nanoseconds(kAll * (kAll - 1) / 2 + kAll));
  EXPECT_EQ(rows[0].longest, nanoseconds(kAll - 1));
  EXPECT_EQ(stats.batches().count, kAll);
}

TEST(Stats, GroupsBatchesByPowersOfTwo) {
  Stats stats(true);
  for (const std::uint64_t records : {1u, 2u, 3u, 4u, 7u, 8u}) count_batch(stats, records, 64);
  count_batch(stats, ~std::uint64_t{0}, 0);  // Beyond the last class.
  const Stats::Batches batches = stats.batches();
  EXPECT_EQ(batches.by_records[0], 1u);
  EXPECT_EQ(batches.by_records[1], 2u);
  EXPECT_EQ(batches.by_records[2], 2u);
  EXPECT_EQ(batches.by_records[3], 1u);
  EXPECT_EQ(batches.by_records.back(), 1u);
  EXPECT_EQ(batches.by_bytes[6], 6u);
  EXPECT_EQ(batches.by_bytes[0], 1u);
}

TEST(Stats, CountsUnknownOpcodeAsZero) {
  Stats stats(true);
  stats.count(call(65535), 1, {});
  ASSERT_EQ(stats.rows().size(), 1u);
  EXPECT_EQ(stats.rows()[0].opcode, 0);
}

TEST(Stats, ExcludesStatisticsQueries) {
  Stats stats(true);
  stats.count(call(protocol::kStatisticsOpcode), 88, {});
  stats.count_fence({protocol::kStatisticsOpcode, 0, 0, nanoseconds(1)});
  EXPECT_TRUE(stats.rows().empty());
}

TEST(Stats, RecordsEachCallWaitAndBatch) {
  Stats stats(false, true);
  EXPECT_FALSE(stats.wanted());
  protocol::RecordHeader launch = call(9);
  launch.form = protocol::Form::kLaunch;
  launch.lane = 2;
  launch.sequence = 41;
  launch.stream = 6;
  protocol::LaunchPayload payload;
  payload.function = 0xF00D;
  const std::uint64_t begin = Recorder::now();
  stats.count(launch, 200, bytes_of(payload));
  stats.count_fence({9, 2, 41, nanoseconds(0)});
  stats.count_wait({9, 2, 40, nanoseconds(1)});
  stats.record_entry(2, 9, begin);
  stats.count_batch(40, 41, 300, 300);
  const protocol::Recording recording = stats.recorder()->take();
  ASSERT_EQ(recording.events.size(), 5u);
  const protocol::RecordedEvent& append = recording.events[0];
  EXPECT_EQ(append.kind, protocol::Recorded::kAppend);
  EXPECT_EQ(append.sequence, 41u);
  EXPECT_EQ(append.thread, 2u);
  EXPECT_EQ(append.stream, 6u);
  EXPECT_EQ(append.subject, 0xF00Du);
  EXPECT_EQ(append.value, 200u);
  EXPECT_EQ(recording.events[1].kind, protocol::Recorded::kFence);
  EXPECT_EQ(recording.events[2].kind, protocol::Recorded::kWait);
  const protocol::RecordedEvent& entry = recording.events[3];
  EXPECT_EQ(entry.kind, protocol::Recorded::kEntry);
  EXPECT_EQ(entry.begin_ns, begin);
  EXPECT_GE(entry.end_ns, append.end_ns);
  EXPECT_EQ(recording.events[4].kind, protocol::Recorded::kBatch);
  EXPECT_EQ(recording.events[4].sequence, 40u);
  EXPECT_EQ(recording.events[4].subject, 41u);
}

TEST(Stats, CountsNothingWhenDisabled) {
  Stats stats(false);
  stats.count_entry(1);
  stats.count(call(1), 1, {});
  stats.count_sent(1, 1);
  stats.count_received(1, 1);
  stats.count_fence({1, 0, 0, nanoseconds(1)});
  stats.count_wait({1, 0, 0, nanoseconds(1)});
  stats.count_full_log();
  stats.count_full_log_end(nanoseconds(1));
  count_batch(stats, 1, 1);
  EXPECT_FALSE(stats.enabled());
  EXPECT_EQ(stats.sender_bell(), nullptr);
  EXPECT_EQ(stats.recorder(), nullptr);
  EXPECT_TRUE(stats.rows().empty());
  EXPECT_EQ(stats.batches().count, 0u);
}

}  // namespace
}  // namespace gpurun::client
