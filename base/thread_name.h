// What debuggers, profilers and `top -H` call the calling thread.
//
// For processes of our own; client/thread.h names the threads that we start in somebody else's.
#pragma once

#include <sys/prctl.h>

namespace gpurun {

// At most 15 bytes of `name` (prctl(2)). Threads that this one starts begin with the same.
inline void name_this_thread(const char* name) noexcept { prctl(PR_SET_NAME, name); }

}  // namespace gpurun
