// keep_standard_descriptors(): reserves the descriptors 0, 1 and 2 for standard input and output.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace gpurun {

// Opens /dev/null for each of the three that the parent process has closed. A file that is opened
// later would get the number, and then the messages. `flags`: with O_CLOEXEC, programs that this
// process executes find the descriptors as the parent left them. Call it first in main().
inline void keep_standard_descriptors(int flags) {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR | flags);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

}  // namespace gpurun
