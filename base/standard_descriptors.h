// Keeps the numbers 0, 1 and 2 for what they are for.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace gpurun {

// Puts /dev/null where whoever started this process has closed one of the three, so that nothing
// that is opened later gets its number, and messages after it. `flags`: O_CLOEXEC leaves programs
// that this process executes as they would be without it. First in main().
inline void keep_standard_descriptors(int flags) {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR | flags);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

}  // namespace gpurun
