// LoopWake: wakes the daemon's loop, for an event, for stop, or for a half-open place that became
// free.
//
// wake(): any thread, and signal handlers. The rest: run()'s thread.
#pragma once

#include <errno.h>
#include <sys/eventfd.h>

#include <utility>

#include "base/unique_fd.h"

namespace gpurun::server {

class LoopWake {
 public:
  // `fd` is an eventfd that does not block.
  explicit LoopWake(UniqueFd fd) : fd_(std::move(fd)) {}
  LoopWake(const LoopWake&) = delete;
  LoopWake& operator=(const LoopWake&) = delete;

  void wake() const noexcept {
    const int kept = errno;
    eventfd_write(fd_.get(), 1);  // Fails only when it is readable already.
    errno = kept;
  }
  // Readable once it has been woken since the last clear().
  int fd() const noexcept { return fd_.get(); }
  void clear() const noexcept {
    eventfd_t count = 0;
    eventfd_read(fd_.get(), &count);
  }

 private:
  const UniqueFd fd_;
};

}  // namespace gpurun::server
