// DescriptorIdentity: tells whether a descriptor's number still stands for what it stood for.
//
// In somebody else's process the program may close any number, and open something of its own under
// it. Whoever would write to, read from, shut down or close a number there asks first. Between the
// question and the call stays a moment in which another thread can do so.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>

namespace gpurun {

class DescriptorIdentity {
 public:
  DescriptorIdentity() = default;  // Of nothing: holds of no descriptor.

  // As it is now. Sockets and pipes have a number of their own in their kernel file system.
  static DescriptorIdentity of(int fd) noexcept {
    DescriptorIdentity identity;
    struct stat about = {};
    const int before = errno;
    if (fstat(fd, &about) == 0) {
      identity.device_ = about.st_dev;
      identity.file_ = about.st_ino;
      identity.known_ = true;
    }
    errno = before;
    return identity;
  }

  // Safe in a signal handler and in a child of a process with threads; keeps errno.
  bool holds(int fd) const noexcept {
    const DescriptorIdentity now = of(fd);
    return known_ && now.known_ && device_ == now.device_ && file_ == now.file_;
  }

 private:
  std::uint64_t device_ = 0;
  std::uint64_t file_ = 0;
  bool known_ = false;
};

}  // namespace gpurun
