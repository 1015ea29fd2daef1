// A file of the user's that nobody else may read.
#pragma once

#include <string>

#include "base/status.h"

namespace gpurun::tools {

// Replaces the file at `path` as a whole, mode 0600; folders that are missing are made with mode
// 0700. A failure leaves the old file as it was.
Status write_private_file(const std::string& path, const std::string& text);

}  // namespace gpurun::tools
