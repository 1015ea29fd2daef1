// Private file: a file of the user's that no other user may read.
#pragma once

#include <string>

#include "base/status.h"

namespace gpurun::tools {

// Replaces the file at `path` as a whole, with mode 0600. Makes missing folders with mode 0700. A
// failure leaves the old file unchanged.
Status write_private_file(const std::string& path, const std::string& text);

}  // namespace gpurun::tools
