// Descriptors: high numbers, watched for forks, and checked before the library uses them.
#include "transport/rdma/descriptors.h"

#include <pthread.h>

#include "base/unique_fd.h"
#include "transport/sockets/descriptor.h"

namespace gpurun::transport::rdma {

ForksHeldOff::ForksHeldOff(const DescriptorPlace& place) noexcept : forks_(place.forks) {
  if (forks_ == nullptr) return;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
  forks_->hold_off_forks();
}

ForksHeldOff::~ForksHeldOff() {
  if (forks_ == nullptr) return;
  forks_->let_forks();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void FieldDescriptor::take(int* field, const DescriptorPlace& place) noexcept {
  if (*field < 0) return;
  *field = sockets::move_up(UniqueFd(*field), place.fd_min).release();
  field_ = field;
  fd_ = *field;
  place_ = place;
  identity_ = DescriptorIdentity::of(fd_);
  // In a process of our own nobody else closes it, and a confined one may not mark it.
  if (place_.fd_min > 0) mark_ = DescriptorMark::put(fd_);
  if (place_.forks != nullptr) place_.forks->watch(fd_);
}

void FieldDescriptor::give_back() noexcept {
  if (field_ == nullptr) return;
  if (place_.forks != nullptr) place_.forks->forget(fd_);
  if (!holds()) *field_ = -1;
  field_ = nullptr;
}

bool FieldDescriptor::holds() const noexcept {
  return (!mark_.is_there() || mark_.holds(fd_)) && identity_.holds(fd_);
}

}  // namespace gpurun::transport::rdma
