// File size limit (`ulimit -f`), which also counts memory files. gpurun needs some files for
// itself, and the program gets the user's limit.
#pragma once

#include "base/status.h"

namespace gpurun::tools {

// Raises this process's limit to its hard limit, and makes a too large write fail instead of ending
// the process. kResourceExhausted: the hard limit is too low.
Status widen_file_limit();
// Call in a child: restores the user's limit. Safe after fork().
void restore_file_limit();

}  // namespace gpurun::tools
