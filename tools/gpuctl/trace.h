// gpuctl trace: what `gpurun --trace FOLDER` has recorded becomes one timeline.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tools/gpuctl/timeline.h"

namespace gpurun::tools {

// The traces that files and folders hold, in the order of their names. kUnavailable: a file cannot
// be read, a folder holds none. kProtocol: something is no trace. Each says which.
Result<std::vector<Traced>> read_traces(const std::vector<std::string>& places);

// Writes the timeline of these to `path` ("-": stdout). The exit status.
int write_trace(const std::vector<std::string>& places, const std::string& path);

}  // namespace gpurun::tools
