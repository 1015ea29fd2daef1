// become_user(): a worker's change to a user that owns nothing.
#pragma once

#include <sys/types.h>

#include "base/status.h"

namespace gpurun::server {

// Applies to all threads of this process, permanently: user and group `user`, no further groups, no
// new privileges by executing a program, no core file. The process still ends with its parent.
// kRefused: the kernel does not permit it.
Status become_user(uid_t user);

}  // namespace gpurun::server
