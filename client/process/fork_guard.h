// ForkGuard: detects that this process is a forked child of one that started a session. In such a
// child it closes the session's descriptors, because the child must not keep a dead parent's
// session alive. It also makes the library forget the parent's state, so that the child can start
// afresh.
//
// The check is one load of a page that the kernel clears in a child (MADV_WIPEONFORK, Linux 4.14).
// It also holds for children made by clone(), which runs no atfork handler.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"

namespace gpurun::client::fork_guard {

// Call it before this process makes anything that a child must not use: the first connection of a
// session. kResourceExhausted: no memory for the page.
Status arm() noexcept;

// Registers `forget`, which runs once in each child, before generation() returns a new number
// there. It runs on the thread that forked, with fork()'s handlers, or at the first call of a child
// that clone() made. Other threads of the parent may have held any lock at that moment, so `forget`
// takes none. At most kForgettersMax. Registering one again does nothing.
using Forget = void (*)();
inline constexpr int kForgettersMax = 16;
void in_each_child(Forget forget) noexcept;

namespace detail {
// In the page. kForked: the kernel has cleared it. Otherwise the process's generation.
inline constexpr std::uint32_t kForked = 0;
inline constexpr std::uint32_t kForgetting = ~std::uint32_t{0};
using Generation = std::atomic<std::uint32_t>;
extern std::atomic<Generation*> armed;
std::uint32_t begin_child(Generation* page) noexcept;
}  // namespace detail

// The number of this process in its line of forks. A child's number differs from its ancestors'. 0
// before arm(). In a new child, the parent's state is forgotten and its descriptors are closed when
// this returns. Any thread, at any time.
inline std::uint32_t generation() noexcept {
  detail::Generation* page = detail::armed.load(std::memory_order_acquire);
  if (page == nullptr) return 0;
  const std::uint32_t number = page->load(std::memory_order_acquire);
  if (number != detail::kForked && number != detail::kForgetting) return number;
  return detail::begin_child(page);
}

// A child closes `fd`, if it still refers to the same file. -1 is ignored. At most kDescriptorsMax
// at a time. Further ones stay open.
inline constexpr int kDescriptorsMax = 256;
void watch(int fd) noexcept;
void forget(int fd) noexcept;
// fork() waits from hold_off_forks() to let_forks(), for a descriptor to be made and watched. Call
// both on one thread, with its signals blocked.
void hold_off_forks() noexcept;
void let_forks() noexcept;

}  // namespace gpurun::client::fork_guard
