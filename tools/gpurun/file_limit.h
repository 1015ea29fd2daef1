// The limit of file sizes (`ulimit -f`), which counts memory files, too: gpurun needs some for
// itself, and the program has the user's limit.
#pragma once

#include "base/status.h"

namespace gpurun::tools {

// Raises this process's limit to its hard one, and has a file that is too large fail instead of
// ending the process. kResourceExhausted: what it may have is too little.
Status widen_file_limit();
// In a child: as it was. Safe after fork().
void restore_file_limit();

}  // namespace gpurun::tools
