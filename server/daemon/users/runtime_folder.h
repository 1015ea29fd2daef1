// Runtime folder: the folder for user claims and secrets of one run, which lasts until this machine
// restarts.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::server {

// Opens the last folder of `path`, and makes it with mode 0700 when it is missing. kRefused: it is
// a link, another user's, or others may write it. Any thread.
Result<UniqueFd> open_runtime_folder(const std::string& path);

}  // namespace gpurun::server
