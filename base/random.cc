// Random bytes by system call.
#include "base/random.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gpurun {

Status fill_random(MutableBytes into) {
  while (!into.empty()) {
    // A system call, because glibc has the function only since 2.25.
    const long count = syscall(SYS_getrandom, into.data(), into.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Status::from_errno(errno, "getrandom");
    into = into.subspan(static_cast<std::size_t>(count));
  }
  return Status();
}

}  // namespace gpurun
