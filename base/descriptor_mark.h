// DescriptorMark: tells, by a cheaper system call than DescriptorIdentity's, whether a descriptor's
// number still stands for what it stood for.
//
// The mark is the signal that the open file would send on input if it were in O_ASYNC mode, which
// it is not (F_SETSIG, fcntl(2)): a real-time signal, in place of the 0 that every other file has.
// Only a file whose owner has chosen the same signal passes for a marked one; to close what
// somebody else may have opened, or to shut it down, DescriptorIdentity is to be asked.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cerrno>

namespace gpurun {

class DescriptorMark {
 public:
  DescriptorMark() = default;  // None.

  // Marks what `fd` stands for, with another signal than the last thirty times. A kernel, or a
  // filter of system calls, may refuse: then there is no mark.
  static DescriptorMark put(int fd) noexcept {
    static std::atomic<unsigned> puts{0};
    DescriptorMark mark;
    const int before = errno;
    const int signal = kHighest - static_cast<int>(puts.fetch_add(1) % kSignals);
    if (fcntl(fd, F_SETSIG, signal) == 0 && fcntl(fd, F_GETSIG) == signal) mark.signal_ = signal;
    errno = before;
    return mark;
  }

  bool is_there() const noexcept { return signal_ != 0; }
  // Safe in a signal handler and in a child of a process with threads; keeps errno.
  bool holds(int fd) const noexcept {
    const int before = errno;
    const int signal = fcntl(fd, F_GETSIG);
    errno = before;
    return signal_ != 0 && signal == signal_;
  }

 private:
  // Linux' real-time signals are 32 to 64; the C library keeps the first two for itself.
  static constexpr int kHighest = 64, kSignals = 30;

  int signal_ = 0;
};

}  // namespace gpurun
