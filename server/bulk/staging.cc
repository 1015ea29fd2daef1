// A list of free slots in one mapping.
#include "server/bulk/staging.h"

#include <sys/mman.h>

#include "protocol/limits.h"

namespace gpurun::server {
namespace {

constexpr unsigned kHostRegisterPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE (cuda.h).

}  // namespace

Staging::Staging(std::size_t bytes) : bytes_(bytes), pinned_(bytes / kPartBytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  start_ = static_cast<std::byte*>(memory);
  for (std::size_t end = bytes; end != 0; end -= limits::kBulkChunkBytes) {
    free_.push_back(start_ + end - limits::kBulkChunkBytes);
  }
}

Staging::~Staging() {
  if (start_ != nullptr) munmap(start_, bytes_);
}

std::byte* Staging::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return nullptr;
  std::byte* slot = free_.back();
  free_.pop_back();
  return slot;
}

void Staging::give_back(std::byte* slot) {
  const std::lock_guard lock(mutex_);
  free_.push_back(slot);
}

std::size_t Staging::free_slots() const {
  const std::lock_guard lock(mutex_);
  return free_.size();
}

void Staging::pin(const DriverFunctions& driver, const std::byte* slot) {
  const auto part = static_cast<std::size_t>(slot - start_) / kPartBytes;
  if (pinned_[part]) return;
  pinned_[part] = true;  // Also when it fails: it would fail again at each copy.
  if (driver.cuMemHostRegister == nullptr) return;
  (void)driver.cuMemHostRegister(start_ + part * kPartBytes, kPartBytes, kHostRegisterPortable);
}

}  // namespace gpurun::server
