// write_trace_file(): the file that a process leaves for `gpuctl trace` when it ends
// (protocol/statistics/recording.h).
#pragma once

#include <string>

#include "base/status.h"
#include "protocol/statistics/recording.h"

namespace gpurun::client {

// Writes the file into the folder, under the program's name and the process's number. It replaces a
// file of that name, and no other user may read it. The file is whole or not there. Never raises a
// signal: a file beyond the process's limit is not begun. The Status gives the reason and names the
// file.
Status write_trace_file(const std::string& folder, const protocol::TraceFile& file);

}  // namespace gpurun::client
