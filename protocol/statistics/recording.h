// Recording: the events that a client, and its worker for it, recorded for each call, for `gpuctl
// trace`.
//
// Each side keeps the newest events of each of its threads, at most kRecordedEventsMax. The worker
// sends its recording to the client in pieces (worker_statistics.h). The client writes it unchanged
// into its own file. gpuctl parses both, in a separate process.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/limits.h"

namespace gpurun::protocol {

enum class Recorded : std::uint8_t {
  // The client's.
  kEntry = 1,   // The program was in a function, from begin to end. `sequence`: 0.
  kAppend = 2,  // A call got its number, at `end`. `subject`: the kernel's handle, for a launch;
                // `value`: bytes of the record.
  kFence = 3,   // Its thread waited for the reply.
  kWait = 4,    // Its thread waited for the end of the event record `sequence`, reported without a
                // query.
  kBatch = 5,   // One frame went out: calls `sequence` to `subject`, `value` bytes.
  // The worker's.
  kIssue = 6,  // The call was handed to the driver. `value`: when it was decoded.
  kRest = 7,   // The rest of the call's wait in the driver, on a helper thread.
  kKernel =
      8,  // The device ran a kernel of the call. `stream`: the device's own number. `subject`: the
          // kernel's name. `thread`: the device. `value`: the level, 0 for launches by the host.
};
inline constexpr std::uint8_t kRecordedMin = 1;
inline constexpr std::uint8_t kRecordedMax = 8;

struct RecordedEvent {
  Recorded kind = Recorded::kEntry;
  std::uint8_t form = 0;  // protocol::Form, where there is a record.
  std::uint16_t opcode = 0;
  std::uint32_t thread = 0;    // Lane.
  std::uint64_t sequence = 0;  // Of the call.
  std::uint64_t begin_ns = 0;  // Of the side's own steady clock.
  std::uint64_t end_ns = 0;
  std::uint64_t stream = 0;
  std::uint64_t subject = 0;
  std::uint64_t value = 0;
};
static_assert(sizeof(RecordedEvent) == 56);

struct Recording {
  std::vector<RecordedEvent> events;           // Each thread's are in order.
  std::uint64_t dropped = 0;                   // Older events that had no room.
  std::map<std::uint64_t, std::string> names;  // Of each `subject` that is a kernel.
};

// Events that a client's thread, or a worker, keeps. The oldest are dropped and counted.
inline constexpr std::size_t kRecordedEventsMax = 65'536;
// Names of kernels. Further ones are left out, and long ones are cut.
inline constexpr std::size_t kRecordedNamesMax = 4'096;
inline constexpr std::size_t kRecordedNameBytesMax = 1'024;
Bytes encode(const Recording& recording);
// kProtocol: a size that does not fit, an unknown kind, an event that ends before it begins.
Result<Recording> parse_recording(ByteView bytes);

// One comparison of the two clocks. At `client_ns` on the client's clock, plus or minus half of
// `round_trip_ns`, the worker's clock was `worker_ns`.
struct ClockSample {
  std::uint64_t client_ns = 0;
  std::uint64_t worker_ns = 0;
  std::uint64_t round_trip_ns = 0;
};

// One process's file.
struct TraceFile {
  std::string program;
  std::string server;
  std::int64_t process = 0;
  std::string no_worker;  // Why the worker's recording is missing.
  std::vector<ClockSample> clocks;
  Bytes client;  // Encoded recordings. `worker` is from an untrusted peer, or empty.
  Bytes worker;
};
inline constexpr std::string_view kTraceSuffix = ".gpurun-trace";

Bytes encode(const TraceFile& file);
// kProtocol: not such a file, or of another version.
Result<TraceFile> parse_trace_file(ByteView bytes);

}  // namespace gpurun::protocol
