// name_this_thread(): the name that debuggers, profilers and `top -H` show for the calling thread.
//
// For our own processes. client/process/thread.h names the threads that we start in another
// program's process.
#pragma once

#include <sys/prctl.h>

namespace gpurun {

// Takes at most 15 bytes of `name` (prctl(2)). Threads that this one starts inherit the name.
inline void name_this_thread(const char* name) noexcept { prctl(PR_SET_NAME, name); }

}  // namespace gpurun
