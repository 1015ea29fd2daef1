// Worker statistics: a client's queries to its worker about the session: counters, clock and
// recording.
//
// A worker counts from the session's start if both ends offer Feature::kCounting. A client offers
// it only when it will ask. Queries are fences of an opcode that no CUDA function has, of
// Form::kRaw, Order::kImmediate and no context. Their payload is a StatisticsQueryPayload. A worker
// that does not know them answers CUDA_ERROR_NOT_SUPPORTED.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/limits.h"
#include "protocol/log/record.h"

namespace gpurun::protocol {

inline constexpr std::uint16_t kStatisticsOpcode = limits::kRowsMax - 1;

enum class StatisticsQuery : std::uint32_t {
  kStatistics = 1,  // The reply is a WorkerStatistics, encoded.
  kClock = 2,       // The reply is the worker's steady clock in nanoseconds, 8 bytes.
  kRecord = 3,      // The worker records from now on. The reply is empty.
  kRecording = 4,   // The reply has the recording's size (recording.h), 8 bytes, and a piece of it
                    // from byte `value` on. The recording is as of the query for byte 0.
  kRefusals = 5     // The reply is a WorkerRefusals (worker_refusals.h), encoded.
};
// Bytes of a recording in one reply.
inline constexpr std::size_t kRecordingPieceBytes = std::size_t{192} << 10;

struct StatisticsQueryPayload {
  StatisticsQuery what = StatisticsQuery::kStatistics;
  std::uint32_t reserved = 0;
  std::uint64_t value = 0;
};
static_assert(sizeof(StatisticsQueryPayload) == 16);

// A worker's counters of one function.
struct WorkerRow {
  std::uint16_t opcode = 0;
  std::uint16_t reserved[3] = {};
  std::uint64_t calls = 0;
  std::uint64_t failures = 0;           // Calls with a result other than 0 when they were issued.
  std::uint64_t driver_ns = 0;          // In the driver, and in our code around it.
  std::uint64_t driver_longest_ns = 0;  // Of one call.
  std::uint64_t queue_ns = 0;           // Decoded and not yet issued.
  std::uint64_t queue_longest_ns = 0;
  std::uint64_t bytes_in = 0;   // Records, and their bulk.
  std::uint64_t bytes_out = 0;  // Payloads of replies, and bulk to the client.
};
static_assert(sizeof(WorkerRow) == 72);

// Classes of size: 1, 2 to 3, 4 to 7, ... The last class has the rest.
inline constexpr std::size_t kSizeClasses = 20;
std::size_t size_class(std::uint64_t size) noexcept;

struct WorkerTotals {
  std::uint64_t batches = 0;  // Frames of records received.
  std::uint64_t batch_records = 0;
  std::uint64_t batch_bytes = 0;
  std::uint64_t reply_frames = 0;  // Sent.
  std::uint64_t reply_items = 0;
  std::uint64_t reply_bytes = 0;
  std::uint64_t events_told = 0;  // Items that report the end of an event without a query.
  std::array<std::uint64_t, kSizeClasses> batches_by_records{};
  std::array<std::uint64_t, kSizeClasses> frames_by_items{};
};
static_assert(sizeof(WorkerTotals) == (7 + 2 * kSizeClasses) * 8);

struct WorkerStatistics {
  WorkerTotals totals;
  std::vector<WorkerRow> rows;  // Opcodes ascending, each once.
};

// The rows that fit in one reply. There are fewer functions.
inline constexpr std::size_t kWorkerRowsMax =
    (kReplyPayloadBytesMax - sizeof(WorkerTotals) - 8) / sizeof(WorkerRow);
static_assert(kWorkerRowsMax < limits::kRowsMax);

// Encodes at most kWorkerRowsMax rows and leaves out the rest.
Bytes encode(const WorkerStatistics& statistics);
// kProtocol: a size that does not match its counts, too many rows, or opcodes out of order.
Result<WorkerStatistics> parse_worker_statistics(ByteView bytes);

}  // namespace gpurun::protocol
