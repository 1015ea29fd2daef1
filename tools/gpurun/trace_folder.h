// Where --trace has the processes of the program leave their traces.
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::tools {

// Makes the folder (mode 0700; not those above it) if there is none, and returns its absolute name:
// programs change their current folder. kInvalidArgument: it cannot be made, or nothing can be
// written there; the message names it.
Result<std::string> make_trace_folder(const std::string& word);

}  // namespace gpurun::tools
