// DescriptorIdentity: the identity of an open file, to check that a descriptor still refers to it.
//
// Inside another program's process, the program may close any descriptor and open its own file
// under the same number. Code there checks the identity before it writes to, reads from, shuts down
// or closes a descriptor. Another thread can still change the descriptor between the check and the
// call.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>

namespace gpurun {

class DescriptorIdentity {
 public:
  DescriptorIdentity() = default;  // Of no file: holds() returns false.

  // The identity of `fd` as it is now. Sockets and pipes have an inode of their own in the kernel.
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

  // Safe in a signal handler and in a child of a process with threads. Keeps errno.
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
