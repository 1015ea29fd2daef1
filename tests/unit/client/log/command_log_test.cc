// CommandLog: gives numbers without gaps, keeps records until they are acknowledged, sends the
// appends of several threads in order, and reports "full" instead of overwriting.
#include "client/log/command_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "client/session/session.h"

namespace gpurun::client {
namespace {

constexpr std::size_t kRing = std::size_t{512} << 10;

// False when the log is full.
bool append(CommandLog& log, std::uint32_t payload_bytes) {
  const auto bytes = static_cast<std::uint32_t>(protocol::record_bytes(payload_bytes));
  const CommandLog::Slot slot = log.reserve(bytes);
  if (slot.start == nullptr) return false;
  protocol::RecordHeader header;
  header.sequence = slot.sequence;
  header.payload_bytes = payload_bytes;
  // Only commit() writes `bytes`.
  std::memcpy(slot.start + 4, reinterpret_cast<const std::byte*>(&header) + 4, sizeof header - 4);
  log.commit(slot);
  return true;
}

// Checks a batch's records and returns the last number.
std::uint64_t walk(const CommandLog::Batch& batch, std::uint64_t last) {
  for (std::size_t part = 0; part < batch.part_count; ++part) {
    ByteView rest = batch.parts[part];
    while (!rest.empty()) {
      protocol::RecordHeader header;
      std::memcpy(&header, rest.data(), sizeof header);
      EXPECT_EQ(header.sequence, ++last);
      EXPECT_EQ(header.bytes, protocol::record_bytes(header.payload_bytes));
      rest = rest.subspan(header.bytes);
    }
  }
  return last;
}

TEST(CommandLog, FullLogRefusesAppendsUntilAcknowledged) {
  CommandLog log(kRing);
  ASSERT_TRUE(log.ok());
  std::uint64_t appended = 0;
  while (append(log, 1000)) ++appended;
  EXPECT_LE(appended * protocol::record_bytes(1000), kRing);
  EXPECT_GT((appended + 2) * protocol::record_bytes(1000), kRing);
  EXPECT_FALSE(log.release_through(1)) << "nothing was sent yet";
  while (log.something_to_send()) log.collect(4096);
  EXPECT_FALSE(append(log, 1000)) << "sent is not acknowledged";
  EXPECT_TRUE(log.release_through(appended / 2));
  EXPECT_TRUE(append(log, 1000));
  EXPECT_FALSE(log.release_through(appended + 2));
}

TEST(CommandLog, HoldsExactlyItsCapacity) {
  CommandLog log(limits::kLogBytes);
  ASSERT_TRUE(log.ok());
  constexpr std::uint32_t kRecordBytes = 4096;
  static_assert(limits::kLogBytes % kRecordBytes == 0);
  constexpr auto kPayloadBytes = std::uint32_t{kRecordBytes - protocol::kRecordHeaderBytes};
  for (std::size_t bytes = 0; bytes < limits::kLogBytes; bytes += kRecordBytes) {
    ASSERT_TRUE(append(log, kPayloadBytes)) << bytes;
  }
  EXPECT_FALSE(append(log, 0)) << "not even the smallest record";
  // The product's session has a log of that size.
  EXPECT_EQ(SessionOptions{}.log_bytes, limits::kLogBytes);
}

TEST(CommandLog, UncommittedRecordBlocksLaterRecords) {
  CommandLog log(kRing);
  const CommandLog::Slot first = log.reserve(80);
  ASSERT_TRUE(append(log, 8));
  EXPECT_FALSE(log.something_to_send());
  EXPECT_EQ(log.collect(4096).bytes, 0u);
  protocol::RecordHeader header;
  header.sequence = first.sequence;
  header.payload_bytes = 8;
  std::memcpy(first.start + 4, reinterpret_cast<std::byte*>(&header) + 4, sizeof header - 4);
  log.commit(first);
  EXPECT_TRUE(log.something_to_send());
  EXPECT_EQ(walk(log.collect(4096), 0), 2u);
}

// Appends bursts of `records` records of 4 KiB. Each burst is sent whole, and acknowledged after
// the next one is sent. Returns the distance from the lowest to the highest used place. A burst
// would wait if the log reported "full".
std::size_t reach_of_bursts(CommandLog& log, int bursts, int records, std::uint64_t* last) {
  constexpr auto kPayloadBytes = std::uint32_t{4096 - protocol::kRecordHeaderBytes};
  const std::byte* low = nullptr;
  const std::byte* high = nullptr;
  std::uint64_t before = *last;
  for (int burst = 0; burst < bursts; ++burst) {
    for (int i = 0; i < records; ++i) {
      if (append(log, kPayloadBytes)) continue;
      ADD_FAILURE() << "full: burst " << burst << ", record " << i;
      return 0;
    }
    while (log.something_to_send()) {
      const CommandLog::Batch batch = log.collect(64 << 10);
      *last = walk(batch, *last);
      for (std::size_t part = 0; part < batch.part_count; ++part) {
        const ByteView bytes = batch.parts[part];
        low = low == nullptr ? bytes.data() : std::min(low, bytes.data());
        high = std::max(high, bytes.data() + bytes.size());
      }
    }
    EXPECT_TRUE(log.release_through(before));
    before = *last;
  }
  return static_cast<std::size_t>(high - low);
}

TEST(CommandLog, SmallBurstsReuseFewPages) {
  CommandLog log(limits::kLogBytes);
  std::uint64_t last = 0;
  constexpr std::size_t kMegabyte = std::size_t{1} << 20;
  EXPECT_LE(reach_of_bursts(log, 10000, 4, &last), kMegabyte * 3 / 4);
  EXPECT_LE(reach_of_bursts(log, 1000, 24, &last), kMegabyte * 5 / 4);
  // Even with much under way no burst of 2 MiB waits for room, wherever the earlier ones ended.
  EXPECT_GE(reach_of_bursts(log, 50, 512, &last), 2 * kMegabyte);
  EXPECT_LE(reach_of_bursts(log, 10000, 4, &last), limits::kLogBytes);
  EXPECT_LE(reach_of_bursts(log, 10000, 4, &last), kMegabyte * 3 / 4);
}

// A worker without replies acknowledges at least every 64 KiB, so the client may wait for that
// much.
TEST(CommandLog, LargestRecordFitsBehindUnacknowledgedRecords) {
  CommandLog log(limits::kLogBytes);
  std::uint64_t last = 0;
  const auto send_all = [&] {
    while (log.something_to_send()) last = walk(log.collect(std::size_t{1} << 20), last);
  };
  constexpr auto kPayloadBytes = std::uint32_t{4096 - protocol::kRecordHeaderBytes};
  for (int small = 1; small < 4000; ++small) {
    ASSERT_TRUE(append(log, kPayloadBytes));
    send_all();
    const std::uint64_t before = last;
    if (small % 16 != 15) continue;
    ASSERT_TRUE(append(log, protocol::kRecordPayloadBytesMax)) << small;
    send_all();
    ASSERT_TRUE(log.release_through(small % 32 == 15 ? before : last));
  }
}

TEST(CommandLog, LargeRecordAlwaysFitsInAcknowledgedLog) {
  CommandLog log(kRing);
  std::uint64_t last = 0;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(append(log, i % 3 == 0 ? 150000 : 60000)) << i;
    last = walk(log.collect(kRing), last);
    ASSERT_TRUE(log.release_through(last));
  }
}

TEST(CommandLog, ConcurrentAppendsLeaveNoGaps) {
  CommandLog log(kRing);
  constexpr int kThreads = 4;
  constexpr int kEach = 5000;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&log, thread] {
      for (int index = 0; index < kEach; ++index) {
        while (!append(log, static_cast<std::uint32_t>((index * 37 + thread * 11) % 700))) {
          std::this_thread::yield();
        }
      }
    });
  }
  std::uint64_t last = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (last < kThreads * kEach && std::chrono::steady_clock::now() < end) {
    if (!log.something_to_send()) std::this_thread::yield();
    last = walk(log.collect(64 << 10), last);
    EXPECT_TRUE(log.release_through(last));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(last, std::uint64_t{kThreads * kEach});
}

}  // namespace
}  // namespace gpurun::client
