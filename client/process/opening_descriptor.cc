// OpeningDescriptor: watched by the fork guard, and shut down by give_up().
#include "client/process/opening_descriptor.h"

#include <sys/socket.h>

#include <utility>

#include "client/process/fork_guard.h"

namespace gpurun::client {

// The descriptor is closed by now. A child that is being made may still have it and must close it.
OpeningDescriptor::~OpeningDescriptor() {
  fork_guard::hold_off_forks();
  fork_guard::forget(fd_);
  fork_guard::let_forks();
}

void OpeningDescriptor::before_change() noexcept {
  mutex_.lock();
  fork_guard::hold_off_forks();
}

void OpeningDescriptor::after_change(int fd) noexcept {
  fork_guard::forget(fd_);
  fork_guard::watch(fd);  // Even if the number is the same, the file may be another one.
  fork_guard::let_forks();
  fd_ = fd;
  identity_ = DescriptorIdentity::of(fd);
  mutex_.unlock();
}

bool OpeningDescriptor::wanted() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !given_up_;
}

// The program may have reused the number by now.
void OpeningDescriptor::give_up() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  given_up_ = true;
  if (identity_.holds(fd_)) shutdown(fd_, SHUT_RDWR);
}

int OpeningDescriptor::keep_watched() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(fd_, -1);
}

}  // namespace gpurun::client
