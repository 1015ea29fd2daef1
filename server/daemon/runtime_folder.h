// The folder of what lasts as long as this machine is up: user claims, and secrets for one run.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::server {

// Opens the last folder of `path`, which is made with mode 0700 where it is missing. kRefused: it
// is a link, or another user's, or others may write it. Any thread.
Result<UniqueFd> open_runtime_folder(const std::string& path);

}  // namespace gpurun::server
