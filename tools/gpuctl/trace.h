// gpuctl trace: turns the recordings of `gpurun --trace FOLDER` into one timeline.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tools/gpuctl/timeline.h"

namespace gpurun::tools {

// Reads the traces in files and folders, in the order of their names. kUnavailable: a file cannot
// be read, or a folder holds no trace. kProtocol: a file is not a trace. The message names it.
Result<std::vector<Traced>> read_traces(const std::vector<std::string>& places);

// Writes their timeline to `path` ("-": stdout). Returns the exit status.
int write_trace(const std::vector<std::string>& places, const std::string& path);

}  // namespace gpurun::tools
