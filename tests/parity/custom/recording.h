// Recording lines: the recording device's lines about a call, and which of them the program caused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpurun::parity {

struct Seen {
  int result = 0;                  // CUresult, including failures that are reported late.
  std::vector<std::string> lines;  // Lines of the device, without the worker's housekeeping.
};

// "cuX(a=1, b=out) = 0 b=[01]" -> "cuX"
std::string name_of(const std::string& line);
// -> "cuX(a=1, b=out)"
std::string inputs_of_line(const std::string& line);
// The first handle or number that comes out as `name` or went in as `name`. 0: not found.
std::uint64_t value_in(const std::string& line, const std::string& name);
// The last line of that function. Empty: not found.
std::string line_of(const Seen& seen, const std::string& function);

// Whether the line is a call that the worker makes whatever the program does. Examples are queries
// for a thread's context, for a stream's capture and for a kernel's parameters, and the
// registration of staging memory.
bool is_housekeeping(const std::string& line);
// Removes the worker's checks whether a stream is done: a query whether it captures, followed by a
// query whether it is done (server/worker/execution/executor.cc, context_is_done()). No trial makes
// both queries.
std::vector<std::string> without_looks(std::vector<std::string> lines);
// Whether the call uses an event that stands for none of the program's events.
bool is_on_an_own_event(const std::string& line);

}  // namespace gpurun::parity
