// DescriptorMark: a cheaper check than DescriptorIdentity that a descriptor still refers to its
// file.
//
// The mark is the signal that the open file would send on input in O_ASYNC mode (F_SETSIG,
// fcntl(2)). The file is not in that mode. The mark is a real-time signal, and every other file has
// 0. A file passes for a marked one only if its owner has chosen the same signal. Before a close or
// shutdown of a descriptor that the program may have reopened, check DescriptorIdentity.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cerrno>

namespace gpurun {

class DescriptorMark {
 public:
  DescriptorMark() = default;  // No mark: holds() returns false.

  // Marks the file of `fd` with another signal than the last 29 marks. A kernel or a system call
  // filter may refuse, and then there is no mark.
  static DescriptorMark put(int fd) noexcept {
    static std::atomic<unsigned> puts{0};
    DescriptorMark mark;
    const int before = errno;
    const int signal = kHighest - static_cast<int>(puts.fetch_add(1) % kSignals);
    if (fcntl(fd, F_SETSIG, signal) == 0 && fcntl(fd, F_GETSIG) == signal) mark.signal_ = signal;
    errno = before;
    return mark;
  }

  // The mark that the file of `fd` has.
  static DescriptorMark of(int fd) noexcept {
    DescriptorMark mark;
    const int before = errno;
    const int signal = fcntl(fd, F_GETSIG);
    if (signal > kHighest - kSignals && signal <= kHighest) mark.signal_ = signal;
    errno = before;
    return mark;
  }

  bool is_there() const noexcept { return signal_ != 0; }
  // Safe in a signal handler and in a child of a process with threads. Keeps errno.
  bool holds(int fd) const noexcept {
    const int before = errno;
    const int signal = fcntl(fd, F_GETSIG);
    errno = before;
    return signal_ != 0 && signal == signal_;
  }

 private:
  // Linux has the real-time signals 32 to 64. The C library keeps the first two for itself.
  static constexpr int kHighest = 64, kSignals = 30;

  int signal_ = 0;
};

}  // namespace gpurun
