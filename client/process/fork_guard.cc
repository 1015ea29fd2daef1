// ForkGuard: a page that the kernel wipes in a forked child tells the child from its parent.
#include "client/process/fork_guard.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "base/descriptor_identity.h"
#include "base/descriptor_mark.h"

namespace gpurun::client::fork_guard {
namespace {

// Written by the thread that took `entry` from 0 to kTaken, or that frees it.
struct Watched {
  std::atomic<int> entry{0};  // Descriptor + 1; 0: free.
  DescriptorIdentity identity;
  DescriptorMark mark;  // If the file had one.
};
constexpr int kTaken = -1;
std::array<Watched, kDescriptorsMax> watched{};
std::mutex forks;  // Held while a child is made, or a descriptor that it must not keep.
std::array<std::atomic<Forget>, kForgettersMax> forgetters{};
std::atomic<std::uint32_t> last_generation{detail::kForked};

void before_fork() { forks.lock(); }
void in_parent() { forks.unlock(); }
void in_child() { static_cast<void>(generation()); }

bool is_still(const Watched& each, int fd) noexcept {
  return each.identity.holds(fd) && (!each.mark.is_there() || each.mark.holds(fd));
}

// Only what is safe in a child of a process with threads: no locks, no memory.
void close_in_child() noexcept {
  for (Watched& each : watched) {
    const int fd = each.entry.exchange(0, std::memory_order_acquire) - 1;
    // The program may have reused the number by now.
    if (fd >= 0 && is_still(each, fd)) close(fd);
  }
}

}  // namespace

std::atomic<detail::Generation*> detail::armed{nullptr};

std::uint32_t detail::begin_child(Generation* page) noexcept {
  std::uint32_t number = kForked;
  if (!page->compare_exchange_strong(number, kForgetting, std::memory_order_acq_rel)) {
    while ((number = page->load(std::memory_order_acquire)) == kForgetting) sched_yield();
    return number;
  }
  // A thread that does not exist here may have held it, or the parent's thread for this fork.
  new (&forks) std::mutex;
  close_in_child();
  for (const std::atomic<Forget>& each : forgetters) {
    if (const Forget forget = each.load(std::memory_order_acquire); forget != nullptr) forget();
  }
  number = last_generation.fetch_add(1, std::memory_order_relaxed) + 1;
  page->store(number, std::memory_order_release);
  return number;
}

// Without a lock: a child could find it held by a thread that it does not have.
Status arm() noexcept {
  if (detail::armed.load(std::memory_order_acquire) != nullptr) return {};
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Status::from_errno(errno, "the page that notices a fork");
  if (madvise(memory, bytes, MADV_WIPEONFORK) != 0) {
    const Status status = Status::from_errno(errno, "madvise(MADV_WIPEONFORK)");
    munmap(memory, bytes);
    return status;
  }
  auto* page = static_cast<detail::Generation*>(memory);
  page->store(last_generation.fetch_add(1, std::memory_order_relaxed) + 1,
              std::memory_order_relaxed);
  detail::Generation* none = nullptr;
  if (!detail::armed.compare_exchange_strong(none, page, std::memory_order_acq_rel)) {
    munmap(memory, bytes);
    return {};
  }
  const int error = pthread_atfork(&before_fork, &in_parent, &in_child);
  return error == 0 ? Status() : Status::from_errno(error, "pthread_atfork");
}

void in_each_child(Forget forget) noexcept {
  for (std::atomic<Forget>& each : forgetters) {
    Forget registered = nullptr;
    if (each.compare_exchange_strong(registered, forget, std::memory_order_acq_rel) ||
        registered == forget) {
      return;
    }
  }
}

void watch(int fd) noexcept {
  if (fd < 0) return;
  for (Watched& each : watched) {
    int free = 0;
    if (!each.entry.compare_exchange_strong(free, kTaken, std::memory_order_acquire)) continue;
    each.identity = DescriptorIdentity::of(fd);
    each.mark = DescriptorMark::of(fd);
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
