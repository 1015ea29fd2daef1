// move_up(): moves a socket's descriptor to a high number.
#pragma once

#include "base/unique_fd.h"

namespace gpurun::transport::sockets {

// Moves `fd` to `fd_min` or above, with close-on-exec. When the process's limit is lower, moves it
// as high as the limit allows.
UniqueFd move_up(UniqueFd fd, int fd_min);

}  // namespace gpurun::transport::sockets
