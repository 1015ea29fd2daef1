// The file that a process leaves for `gpuctl trace` when it ends (protocol/recording.h).
#pragma once

#include <string>

#include "base/status.h"
#include "protocol/recording.h"

namespace gpurun::client {

// Writes it into the folder, under the program's name and the process's number, in place of what
// has that name; nobody else may read it. It is whole or not there. Never raises a signal: a file
// beyond the process's limit is not begun. The Status says what could not be done, and names the
// file.
Status write_trace_file(const std::string& folder, const protocol::TraceFile& file);

}  // namespace gpurun::client
