// Device: the two descriptors of a context, for commands and for asynchronous events. The providers
// of rdma-core keep no copy of either (ibv_context::cmd_fd, async_fd).
#include "transport/rdma/device.h"

#include <cerrno>

namespace gpurun::transport::rdma {

Device::Device(ibv_context* context, const DescriptorPlace& place) noexcept
    : context_(context), place_(place) {
  commands_.take(&context_->cmd_fd, place_);
  events_.take(&context_->async_fd, place_);
}

std::unique_ptr<Device> Device::open(ibv_device* listed, const DescriptorPlace& place) {
  const ForksHeldOff held(place);
  ibv_context* const context = ibv_open_device(listed);
  if (context == nullptr) return nullptr;
  return std::unique_ptr<Device>(new Device(context, place));
}

Device::~Device() {
  const ForksHeldOff held(place_);
  commands_.give_back();
  events_.give_back();
  ibv_close_device(context_);
}

// Other threads may be in a call of the library meanwhile.
bool Device::check() noexcept {
  if (!commands_.is_taken()) return true;  // A device without a file.
  if (__atomic_load_n(&context_->cmd_fd, __ATOMIC_RELAXED) < 0) return false;
  if (commands_.holds()) return true;
  __atomic_store_n(&context_->cmd_fd, -1, __ATOMIC_RELAXED);
  return false;
}

}  // namespace gpurun::transport::rdma
