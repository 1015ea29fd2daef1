// Recording: what a client, and its worker for it, wrote down of each call, for `gpuctl trace`.
//
// Each side keeps the newest events of each of its threads, bounded (kRecordedEventsMax).
// The worker's goes to the client in pieces (observation.h), which puts it into its file as it
// came; gpuctl parses both, in a process of its own.
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
  kWait = 4,    // Its thread waited for the end of the event record `sequence`, told unasked.
  kBatch = 5,   // One frame went out: calls `sequence` to `subject`, `value` bytes.
  // The worker's.
  kIssue = 6,  // The call was handed to the driver. `value`: when it was decoded.
  kRest = 7,   // What the call still waited for in the driver, on a helper thread.
  kKernel =
      8,  // The device ran a kernel of the call. `stream`: the device's own number; `subject`:
          // its name; `thread`: the device; `value`: the level, 0 for what the host launched.
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
  std::vector<RecordedEvent> events;           // Of each thread in order.
  std::uint64_t dropped = 0;                   // Older ones that there was no room for.
  std::map<std::uint64_t, std::string> names;  // Of what `subject` says, where it is a kernel.
};

// Events that a client's thread, and a worker, keep; the oldest make room, and are counted.
inline constexpr std::size_t kRecordedEventsMax = 65'536;
// Names of kernels; further ones are left out, long ones cut.
inline constexpr std::size_t kRecordedNamesMax = 4'096;
inline constexpr std::size_t kRecordedNameBytesMax = 1'024;
Bytes encode(const Recording& recording);
// kProtocol: a size that does not fit, an unknown kind, an event that ends before it begins.
Result<Recording> parse_recording(ByteView bytes);

// The two clocks: at `client_ns`, give or take half of `round_trip_ns`, the worker's said
// `worker_ns`.
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
  std::string no_worker;  // Why its recording is missing.
  std::vector<ClockSample> clocks;
  Bytes client;  // Recordings, encoded. `worker` is a stranger's, or empty.
  Bytes worker;
};
inline constexpr std::string_view kTraceSuffix = ".gpurun-trace";

Bytes encode(const TraceFile& file);
// kProtocol: that is no such file, or of another version.
Result<TraceFile> parse_trace_file(ByteView bytes);

}  // namespace gpurun::protocol
