// close_without_linger(): closes a descriptor when another process may have made close() block.
#pragma once

#include "base/unique_fd.h"

namespace gpurun {

// Returns soon, even if close() would block. A socket's last close blocks if its sender has set
// SO_LINGER (socket(7)). It also closes descriptors that were sent over it and not received
// (unix(7)), and these may linger. A helper thread closes the last descriptor by ending, because
// the kernel lets no exiting task linger. The descriptor stays open if no thread can start, or if
// the thread cannot have a descriptor table of its own.
void close_without_linger(UniqueFd file) noexcept;

}  // namespace gpurun
