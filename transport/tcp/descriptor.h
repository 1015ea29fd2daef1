// Where the TCP transport's descriptors lie.
#pragma once

#include "base/unique_fd.h"

namespace gpurun::transport::tcp {

// Moves `fd` to `fd_min` or above, close-on-exec; where the process's limit is lower, as high as it
// allows.
UniqueFd move_up(UniqueFd fd, int fd_min);

}  // namespace gpurun::transport::tcp
