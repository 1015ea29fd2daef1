// Closes a descriptor of which somebody else has decided what its close does.
#pragma once

#include "base/unique_fd.h"

namespace gpurun {

// Returns soon, also where the close of this last descriptor of a socket would wait for what its
// sender has arranged (SO_LINGER, socket(7)), or where it takes such ones with it, unread
// (unix(7)). A thread has it last, and ends: the kernel lets no exiting task linger. Where there is
// no thread to be had, or none may have a table of descriptors of its own, it stays open.
void close_unawaited(UniqueFd file) noexcept;

}  // namespace gpurun
