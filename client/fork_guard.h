// ForkGuard: knows that this process is a forked child of the one that started a session, and
// closes the session's descriptors in such a child, so that it keeps no dead parent's session
// alive.
//
// The check is one load of a page that the kernel clears in a child (MADV_WIPEONFORK, Linux 4.14);
// it also holds for children made by clone() or vfork() tricks that run no atfork handler.
#pragma once

#include "base/status.h"

namespace gpurun::client::fork_guard {

// Once per session, before it starts a thread. kResourceExhausted: no memory for the page.
Status arm() noexcept;
// True in a child of a process that had armed; its descriptors are closed then, if not before. Any
// thread, at any time.
bool forked() noexcept;
// `fd` is closed in a child, if it is still what it is now; -1 is ignored. At most kDescriptorsMax
// at a time, others stay open.
inline constexpr int kDescriptorsMax = 256;
void watch(int fd) noexcept;
void forget(int fd) noexcept;

}  // namespace gpurun::client::fork_guard
