// Timeline: traces of the processes of a run as one file of Chrome's trace event format (JSON),
// which ui.perfetto.dev and chrome://tracing open.
//
// For each process: its threads with their calls and, within these, their waits; the worker's issue
// by stream; the device's kernels by stream, where the driver tells of them. What belongs to one
// call is joined by a flow, and carries its sequence number as `call`.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"
#include "protocol/recording.h"

namespace gpurun::tools {

// One process's file, read.
struct Traced {
  protocol::TraceFile file;
  protocol::Recording client;
  protocol::Recording worker;
};

// From the worker's clock to its client's: one offset, the best sample's; or, where the best of the
// first half and that of the second are farther apart than their errors, a line between these, for
// clocks drift.
class ClockLine {
 public:
  explicit ClockLine(const std::vector<protocol::ClockSample>& samples);
  bool known() const { return known_; }
  std::uint64_t error_ns() const { return error_ns_; }  // Of any time between the samples.
  std::int64_t client_time(std::uint64_t worker_ns) const;

 private:
  bool known_ = false;
  double worker_begin_ = 0;
  double offset_begin_ = 0;
  double drift_ = 0;  // Nanoseconds of offset a nanosecond.
  std::uint64_t error_ns_ = 0;
};

// Text as a JSON string, whatever its bytes are.
std::string json_text(const std::string& text);

// kUnavailable: what could not be written.
Status write_timeline(const std::vector<Traced>& processes, std::FILE* to);

}  // namespace gpurun::tools
