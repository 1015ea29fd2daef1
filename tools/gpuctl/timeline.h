// Timeline: the traces of a run's processes as one file in Chrome's trace event format (JSON).
// ui.perfetto.dev and chrome://tracing open it.
//
// It shows for each process: its threads with their calls and, within these, their waits. Then the
// worker's issue by stream, and the device's kernels by stream where the driver reports them. A
// flow joins everything of one call, which has its sequence number as `call`.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"
#include "protocol/statistics/recording.h"

namespace gpurun::tools {

// A parsed file of one process.
struct Traced {
  protocol::TraceFile file;
  protocol::Recording client;
  protocol::Recording worker;
};

// Converts the worker's clock to its client's by one offset, that of the best sample. Clocks drift:
// when the best samples of the first and the second half differ by more than their errors, it uses
// a line between these two.
class ClockLine {
 public:
  explicit ClockLine(const std::vector<protocol::ClockSample>& samples);
  bool known() const { return known_; }
  std::uint64_t error_ns() const { return error_ns_; }  // For any time between the samples.
  std::int64_t client_time(std::uint64_t worker_ns) const;

 private:
  bool known_ = false;
  double worker_begin_ = 0;
  double offset_begin_ = 0;
  double drift_ = 0;  // Nanoseconds of offset for each nanosecond.
  std::uint64_t error_ns_ = 0;
};

// Any bytes as a JSON string.
std::string json_text(const std::string& text);

// kUnavailable: it could not be written.
Status write_timeline(const std::vector<Traced>& processes, std::FILE* to);

}  // namespace gpurun::tools
