// ForkGuard: knows that this process is a forked child of the one that started a session, and
// closes the session's descriptors in such a child, so that it keeps no dead parent's session
// alive.
//
// The check is one load of a page that the kernel clears in a child (MADV_WIPEONFORK, Linux 4.14);
// it also holds for children made by clone() or vfork() tricks that run no atfork handler.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"

namespace gpurun::client::fork_guard {

// Once per session, before it starts a thread. kResourceExhausted: no memory for the page.
Status arm() noexcept;

namespace detail {
using Flag = std::atomic<std::uint32_t>;
extern std::atomic<const Flag*> armed;  // Non-zero inside: by this very process.
void close_in_child() noexcept;
}  // namespace detail

// True in a child of a process that had armed; its descriptors are closed then, if not before. Any
// thread, at any time.
inline bool forked() noexcept {
  const detail::Flag* flag = detail::armed.load(std::memory_order_acquire);
  if (flag == nullptr || flag->load(std::memory_order_relaxed) != 0) return false;
  detail::close_in_child();  // Made without the C library, it has run no handler.
  return true;
}
// `fd` is closed in a child, if it is still what it is now; -1 is ignored. At most kDescriptorsMax
// at a time, others stay open.
inline constexpr int kDescriptorsMax = 256;
void watch(int fd) noexcept;
void forget(int fd) noexcept;
// From one to the other, on one thread, whose signals are blocked, fork() waits: for a descriptor
// to be made and watched.
void hold_off_forks() noexcept;
void let_forks() noexcept;

}  // namespace gpurun::client::fork_guard
