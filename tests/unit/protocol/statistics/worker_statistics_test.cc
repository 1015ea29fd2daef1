// Worker statistics: a worker's counts arrive unchanged over the wire, and invalid ones are
// detected before any of them is used.
#include "protocol/statistics/worker_statistics.h"

#include <gtest/gtest.h>

#include <cstring>

#include "driver_abi/row.h"
#include "protocol/log/record.h"

namespace gpurun::protocol {
namespace {

WorkerStatistics counted() {
  WorkerStatistics statistics;
  statistics.totals.batches = 3;
  statistics.totals.events_told = 9;
  statistics.totals.frames_by_items[kSizeClasses - 1] = 5;
  for (const int opcode : {3, 7, 4095}) {
    WorkerRow row;
    row.opcode = static_cast<std::uint16_t>(opcode);
    row.calls = static_cast<std::uint64_t>(opcode) * 10;
    row.queue_longest_ns = static_cast<std::uint64_t>(opcode);
    row.bytes_out = static_cast<std::uint64_t>(opcode) * 3;
    statistics.rows.push_back(row);
  }
  return statistics;
}

// The bytes with another number at `offset`.
Bytes changed(std::size_t offset, std::uint64_t value) {
  Bytes bytes = encode(counted());
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

TEST(WorkerStatistics, RoundTripUnchanged) {
  const auto parsed = parse_worker_statistics(encode(counted()));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->totals.batches, 3u);
  EXPECT_EQ(parsed->totals.events_told, 9u);
  EXPECT_EQ(parsed->totals.frames_by_items[kSizeClasses - 1], 5u);
  ASSERT_EQ(parsed->rows.size(), 3u);
  EXPECT_EQ(parsed->rows[1].opcode, 7);
  EXPECT_EQ(parsed->rows[1].calls, 70u);
  EXPECT_EQ(parsed->rows[2].queue_longest_ns, 4095u);
  EXPECT_EQ(parsed->rows[2].bytes_out, 3 * 4095u);
}

TEST(WorkerStatistics, AllFunctionsFitIntoReply) {
  EXPECT_LE(driver_abi::rows().size(), kWorkerRowsMax);
  WorkerStatistics all;
  for (std::size_t opcode = 0; opcode < limits::kRowsMax; ++opcode) {
    WorkerRow row;
    row.opcode = static_cast<std::uint16_t>(opcode);
    all.rows.push_back(row);
  }
  const Bytes bytes = encode(all);
  EXPECT_LE(bytes.size(), kReplyPayloadBytesMax);
  const auto parsed = parse_worker_statistics(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->rows.size(), kWorkerRowsMax);
}

TEST(WorkerStatistics, InvalidBytesAreRefused) {
  const Bytes bytes = encode(counted());
  const std::size_t count_at = sizeof(WorkerTotals);
  for (const std::size_t size : {std::size_t{0}, count_at, count_at + 7, bytes.size() - 1}) {
    EXPECT_EQ(parse_worker_statistics(ByteView(bytes).first(size)).status().code(), Code::kProtocol)
        << size;
  }
  // Fewer rows, more rows, and so many that their size overflows to a small number.
  for (const std::uint64_t rows :
       {std::uint64_t{2}, std::uint64_t{4}, std::uint64_t{kWorkerRowsMax + 1},
        ~std::uint64_t{0} / sizeof(WorkerRow) + 1}) {
    EXPECT_EQ(parse_worker_statistics(changed(count_at, rows)).status().code(), Code::kProtocol)
        << rows;
  }
  const std::size_t second = count_at + 8 + sizeof(WorkerRow);
  EXPECT_EQ(parse_worker_statistics(changed(second, 3)).status().code(), Code::kProtocol);
  EXPECT_TRUE(parse_worker_statistics(changed(second, 4)).ok());
}

TEST(WorkerStatistics, SizeClassesArePowersOfTwo) {
  EXPECT_EQ(size_class(0), 0u);
  EXPECT_EQ(size_class(1), 0u);
  EXPECT_EQ(size_class(2), 1u);
  EXPECT_EQ(size_class(3), 1u);
  EXPECT_EQ(size_class(4), 2u);
  EXPECT_EQ(size_class(~std::uint64_t{0}), kSizeClasses - 1);
}

TEST(WorkerStatistics, OpcodeDiffersFromAllCudaFunctions) {
  for (const driver_abi::Row& row : driver_abi::rows()) EXPECT_NE(row.opcode, kStatisticsOpcode);
}

}  // namespace
}  // namespace gpurun::protocol
