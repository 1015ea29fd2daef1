// The device heap on top of the host's: memory of kernels is memory of this process.
#include "emulated/runtime/device_heap.h"

#include <cstdlib>

namespace gpurun::emulated {

namespace {
// Charged per allocation, so that endless allocations of 0 bytes also meet the limit.
constexpr std::size_t kBytesEach = 16;
}  // namespace

DeviceHeap::~DeviceHeap() {
  for (const auto& entry : live_) std::free(reinterpret_cast<void*>(entry.first));
}

void DeviceHeap::set_limit(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

std::size_t DeviceHeap::limit() const {
  std::lock_guard lock(mutex_);
  return limit_;
}

std::size_t DeviceHeap::bytes_used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

std::uint64_t DeviceHeap::allocate(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (limit_ < kBytesEach || bytes > limit_ - kBytesEach) return 0;
  const std::size_t charged =
      ((static_cast<std::size_t>(bytes) + 15) & ~std::size_t{15}) + kBytesEach;
  if (charged > limit_ || used_ > limit_ - charged) return 0;
  void* memory = std::malloc(charged - kBytesEach + (bytes == 0 ? 16 : 0));
  if (memory == nullptr) return 0;
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  live_.emplace(address, charged);
  used_ += charged;
  return address;
}

bool DeviceHeap::release(std::uint64_t address) {
  if (address == 0) return true;
  std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) return false;
  used_ -= found->second;
  live_.erase(found);
  std::free(reinterpret_cast<void*>(address));
  return true;
}

}  // namespace gpurun::emulated
