// Staging: a list of free slots in one mapping.
#include "server/bulk/staging.h"

#include <sys/mman.h>

#include <algorithm>

#include "protocol/limits.h"

namespace gpurun::server {
namespace {

constexpr unsigned kHostRegisterPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE (cuda.h).
constexpr int kErrorAlreadyRegistered = 712;   // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED.
constexpr std::size_t kPartSlots = Staging::kPartBytes / limits::kBulkChunkBytes;

}  // namespace

Staging::Staging(std::size_t bytes) : bytes_(bytes), parts_(bytes / kPartBytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  start_ = static_cast<std::byte*>(memory);
  for (std::size_t end = bytes; end != 0; end -= limits::kBulkChunkBytes) {
    free_.push_back(start_ + end - limits::kBulkChunkBytes);
  }
}

// Registered memory stays mapped, because the driver would take a later mapping at that place for
// the registered one. The process soon ends anyway.
Staging::~Staging() {
  if (start_ == nullptr) return;
  if (was_registered_) {
    (void)madvise(start_, bytes_, MADV_DONTNEED);
  } else {
    munmap(start_, bytes_);
  }
}

std::byte* Staging::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return nullptr;
  std::byte* slot = free_.back();
  free_.pop_back();
  std::byte* furthest = free_.empty() ? slot : std::max(slot, free_.back());
  const auto end = static_cast<std::size_t>(furthest - start_) / limits::kBulkChunkBytes + 1;
  if (end > reach_.load(std::memory_order_relaxed)) reach_.store(end, std::memory_order_release);
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

const std::byte* Staging::next() const {
  const std::lock_guard lock(mutex_);
  return free_.empty() ? nullptr : free_.back();
}

bool Staging::settled(const std::byte* slot) const noexcept {
  const auto part = static_cast<std::size_t>(slot - start_) / kPartBytes;
  return part < settled_.load(std::memory_order_acquire);
}

std::size_t Staging::wanted(bool ahead) const noexcept {
  const std::size_t reach = reach_.load(std::memory_order_acquire);
  return std::min(bytes_ / kPartBytes, (reach + kPartSlots - 1) / kPartSlots + (ahead ? 1 : 0));
}

bool Staging::begin_registering(void* context, bool ahead) {
  const std::size_t wanted_now = wanted(ahead);
  if (wanted_now <= settled_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  wanted_ = std::max(wanted_, wanted_now);
  if (registering_ || wanted_ <= settled_.load(std::memory_order_relaxed)) return false;
  registering_ = true;
  outdated_ = false;
  context_ = context;
  return true;
}

// With the lock held.
void Staging::settle() {
  std::size_t parts = 0;
  while (parts < parts_.size() && (refused_ || parts_[parts].registered)) ++parts;
  settled_.store(parts, std::memory_order_release);
}

Staging::Went Staging::register_next(const DriverFunctions& driver, int entered, int* refused) {
  *refused = 0;
  std::size_t part = 0;
  {
    const std::lock_guard lock(mutex_);
    part = settled_.load(std::memory_order_relaxed);
    registering_ = !outdated_ && part < wanted_;
    if (!registering_) return Went::kOver;
  }
  std::byte* memory = start_ + part * kPartBytes;
  int result = entered;
  if (result == 0) result = driver.cuMemHostRegister(memory, kPartBytes, kHostRegisterPortable);
  if (result == kErrorAlreadyRegistered) result = 0;  // The registration outlived its context.
  const std::lock_guard lock(mutex_);
  was_registered_ = was_registered_ || result == 0;
  if (!outdated_) {
    *refused = result;
    refused_ = result != 0;
    if (!refused_) parts_[part] = {true, context_};
    settle();
  }
  registering_ = !outdated_ && settled_.load(std::memory_order_relaxed) < wanted_;
  return registering_ ? Went::kOn : Went::kOver;
}

void Staging::settle_all() noexcept {
  if (settled_.load(std::memory_order_relaxed) == bytes_ / kPartBytes) return;
  const std::lock_guard lock(mutex_);
  refused_ = true;
  settle();
}

void Staging::context_ended(const void* context) {
  const std::lock_guard lock(mutex_);
  if (context_ == context) {
    outdated_ = registering_;
    refused_ = false;
  }
  for (Part& part : parts_) part.registered = part.registered && part.context != context;
  settle();
}

}  // namespace gpurun::server
