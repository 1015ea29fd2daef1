// The fork guard's, with a way to shut it down.
#include "client/opening_descriptor.h"

#include <sys/socket.h>

#include <utility>

#include "client/fork_guard.h"

namespace gpurun::client {

// It is closed by now. A child that is being made may have it still, and is to know of it.
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
  fork_guard::watch(fd);  // Under the same number it may be another one.
  fork_guard::let_forks();
  fd_ = fd;
  identity_ = DescriptorIdentity::of(fd);
  mutex_.unlock();
}

bool OpeningDescriptor::wanted() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !given_up_;
}

// The program may have something of its own under the number by now.
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
