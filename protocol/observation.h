// Observation: what a client asks of its worker about the session itself: what it has counted, its
// clock, what it has recorded.
//
// A worker counts from the session's begin if both ends offer Feature::kCounting, which a client
// does only when it will ask. Questions are fences of an opcode that no function of CUDA has, of
// Form::kRaw, Order::kImmediate and no context, whose payload is an ObservePayload. A worker that
// does not know them answers CUDA_ERROR_NOT_SUPPORTED.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/limits.h"
#include "protocol/record.h"

namespace gpurun::protocol {

inline constexpr std::uint16_t kObserveOpcode = limits::kRowsMax - 1;

enum class Observe : std::uint32_t {
  kStatistics = 1,  // The reply is a WorkerStatistics, encoded.
  kClock = 2,       // The reply is the worker's steady clock in nanoseconds, 8 bytes.
  kRecord = 3,      // The worker records from now on; the reply is empty.
  kRecording = 4    // The reply is how many bytes the recording has (recording.h), 8 bytes, and a
                    // piece of it from byte `value` on. It is as of the question about byte 0.
};
// Of a recording in one reply.
inline constexpr std::size_t kRecordingPieceBytes = std::size_t{192} << 10;

struct ObservePayload {
  Observe what = Observe::kStatistics;
  std::uint32_t reserved = 0;
  std::uint64_t value = 0;
};
static_assert(sizeof(ObservePayload) == 16);

// What a worker counted of one function.
struct WorkerRow {
  std::uint16_t opcode = 0;
  std::uint16_t reserved[3] = {};
  std::uint64_t calls = 0;
  std::uint64_t failures = 0;   // That answered another result than 0 when they were issued.
  std::uint64_t driver_ns = 0;  // In the driver, and in our code around it.
  std::uint64_t driver_longest_ns = 0;  // Of one call.
  std::uint64_t queue_ns = 0;           // Decoded, and not yet issued.
  std::uint64_t queue_longest_ns = 0;
  std::uint64_t bytes_in = 0;   // Records, and what belongs to them beside the log.
  std::uint64_t bytes_out = 0;  // Replies' payloads, and copies to the client beside the log.
};
static_assert(sizeof(WorkerRow) == 72);

// By size: 1, 2 to 3, 4 to 7, ...; the last has the rest.
inline constexpr std::size_t kSizeClasses = 20;
std::size_t size_class(std::uint64_t size) noexcept;

struct WorkerTotals {
  std::uint64_t batches = 0;  // Frames of records that came.
  std::uint64_t batch_records = 0;
  std::uint64_t batch_bytes = 0;
  std::uint64_t reply_frames = 0;  // That were sent.
  std::uint64_t reply_items = 0;
  std::uint64_t reply_bytes = 0;
  std::uint64_t events_told = 0;  // Of the items: ends of events, told unasked.
  std::array<std::uint64_t, kSizeClasses> batches_by_records{};
  std::array<std::uint64_t, kSizeClasses> frames_by_items{};
};
static_assert(sizeof(WorkerTotals) == (7 + 2 * kSizeClasses) * 8);

struct WorkerStatistics {
  WorkerTotals totals;
  std::vector<WorkerRow> rows;  // Opcodes ascending, none twice.
};

// So many rows one reply holds; there are fewer functions.
inline constexpr std::size_t kWorkerRowsMax =
    (kReplyPayloadBytesMax - sizeof(WorkerTotals) - 8) / sizeof(WorkerRow);
static_assert(kWorkerRowsMax < limits::kRowsMax);

// At most kWorkerRowsMax rows; what is beyond is left out.
Bytes encode(const WorkerStatistics& statistics);
// kProtocol: of another size than it says, too many rows, or opcodes out of order.
Result<WorkerStatistics> parse_worker_statistics(ByteView bytes);

}  // namespace gpurun::protocol
