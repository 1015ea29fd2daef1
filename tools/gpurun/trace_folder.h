// make_trace_folder(): the folder in which --trace makes the program's processes leave their
// traces.
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::tools {

// Makes the folder (mode 0700, without its parents) if it does not exist. Returns its absolute
// path, because programs change their current folder. kInvalidArgument: it cannot be made, or is
// not writable. The message names it.
Result<std::string> make_trace_folder(const std::string& word);

}  // namespace gpurun::tools
