// How a worker becomes a user who owns nothing.
#pragma once

#include <sys/types.h>

#include "base/status.h"

namespace gpurun::server {

// All threads of this process, for good: user and group `user`, no further groups, no new
// privileges by executing anything, no core file. The process still ends with its parent.
// kRefused: the kernel does not let it.
Status become_user(uid_t user);

}  // namespace gpurun::server
