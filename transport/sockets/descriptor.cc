// move_up(): high numbers keep clear of the program in the same process.
#include "transport/sockets/descriptor.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

namespace gpurun::transport::sockets {

UniqueFd move_up(UniqueFd fd, int fd_min) {
  if (fd.get() >= fd_min) {
    fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
    return fd;
  }
  int moved = fcntl(fd.get(), F_DUPFD_CLOEXEC, fd_min);
  if (moved < 0) {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 64) {
      const auto top = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20)) - 32;
      moved = fcntl(fd.get(), F_DUPFD_CLOEXEC, std::min(top, fd_min));
    }
  }
  if (moved < 0) {
    fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
    return fd;
  }
  return UniqueFd(moved);
}

}  // namespace gpurun::transport::sockets
