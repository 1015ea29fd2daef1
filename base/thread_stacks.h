// with_ordinary_stacks(): thread stacks that do not depend on the shell's `ulimit -s`.
//
// The C library sizes each thread's stack by the limit that the process started with. The kernel
// lets the first thread's stack grow up to the same limit. Without this, a limit that a user sets
// for a program, or a script for all programs, would apply to a server's threads.
#pragma once

#include <cstddef>

namespace gpurun {

inline constexpr std::size_t kOrdinaryStackBytes = std::size_t{8} << 20;

// Runs `body` in the first thread with an ordinary stack, and returns its result. Each thread that
// is started without a size of its own gets an ordinary stack. Call it from main(), once.
int with_ordinary_stacks(int (*body)(int, char**), int argc, char** argv);

}  // namespace gpurun
