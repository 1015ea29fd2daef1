// A page that the kernel wipes in a forked child tells it from its parent.
#include "client/fork_guard.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "base/descriptor_identity.h"

namespace gpurun::client::fork_guard {
namespace {

// Written by whoever took `entry` from 0 to kTaken, and by whoever frees it.
struct Watched {
  std::atomic<int> entry{0};  // Descriptor + 1; 0: free.
  DescriptorIdentity identity;
};
constexpr int kTaken = -1;
std::array<Watched, kDescriptorsMax> watched{};
std::mutex forks;  // Held while a child is made, or a descriptor that it must not keep.

void before_fork() { forks.lock(); }
void in_parent() { forks.unlock(); }
void in_child() {
  forks.unlock();
  detail::close_in_child();
}

}  // namespace

std::atomic<const detail::Flag*> detail::armed{nullptr};

// Only what is safe in a child of a process with threads: no locks, no memory.
void detail::close_in_child() noexcept {
  for (Watched& each : watched) {
    const int fd = each.entry.exchange(0, std::memory_order_acquire) - 1;
    // The program may have something of its own under the number by now.
    if (fd >= 0 && each.identity.holds(fd)) close(fd);
  }
}

Status arm() noexcept {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (detail::armed.load(std::memory_order_relaxed) != nullptr) return {};
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Status::from_errno(errno, "the page that notices a fork");
  if (madvise(memory, bytes, MADV_WIPEONFORK) != 0) {
    const Status status = Status::from_errno(errno, "madvise(MADV_WIPEONFORK)");
    munmap(memory, bytes);
    return status;
  }
  if (const int error = pthread_atfork(&before_fork, &in_parent, &in_child); error != 0) {
    munmap(memory, bytes);
    return Status::from_errno(error, "pthread_atfork");
  }
  auto* flag = static_cast<detail::Flag*>(memory);
  flag->store(1, std::memory_order_relaxed);
  detail::armed.store(flag, std::memory_order_release);
  return {};
}

void watch(int fd) noexcept {
  if (fd < 0) return;
  for (Watched& each : watched) {
    int free = 0;
    if (!each.entry.compare_exchange_strong(free, kTaken, std::memory_order_acquire)) continue;
    each.identity = DescriptorIdentity::of(fd);
    each.entry.store(fd + 1, std::memory_order_release);
    return;
  }
}

void forget(int fd) noexcept {
  if (fd < 0) return;
  for (Watched& each : watched) {
    int held = fd + 1;
    if (each.entry.compare_exchange_strong(held, 0, std::memory_order_release)) return;
  }
}

void hold_off_forks() noexcept { forks.lock(); }
void let_forks() noexcept { forks.unlock(); }

}  // namespace gpurun::client::fork_guard
