// What the recording device wrote about a call, and which of it the program asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpurun::every_row {

struct Seen {
  int result = 0;                  // CUresult, failures told late included.
  std::vector<std::string> lines;  // Of the device, without the worker's own business.
};

// "cuX(a=1, b=out) = 0 b=[01]" -> "cuX"
std::string name_of(const std::string& line);
// -> "cuX(a=1, b=out)"
std::string inputs_of_line(const std::string& line);
// The first handle or number that comes out as, or went in as, `name`; 0: there is none.
std::uint64_t value_in(const std::string& line, const std::string& name);
// The last line of that function; empty: there is none.
std::string line_of(const Seen& seen, const std::string& function);

// What a worker asks and tells the driver whatever the program does: whose context a thread is in,
// whether a stream captures, which parameters a kernel has, where its staging memory lies.
bool is_housekeeping(const std::string& line);
// Without the worker's looks at whether a stream is done: a question whether it captures, and one
// whether it is done, one behind the other (server/worker/executor.cc, context_is_done()). No trial
// asks both.
std::vector<std::string> without_looks(std::vector<std::string> lines);
// A call on an event that stands for none of the program's.
bool is_on_an_own_event(const std::string& line);

}  // namespace gpurun::every_row
