// Stacks of threads that do not depend on the shell's `ulimit -s`.
//
// The C library gives a thread as much stack as the process's limit was at its start, and the
// kernel lets the first thread's grow so far. A limit that a user sets for a program, or a script
// for all, would be that of a server's threads, too.
#pragma once

#include <cstddef>

namespace gpurun {

inline constexpr std::size_t kOrdinaryStackBytes = std::size_t{8} << 20;

// Runs `body`, in the first thread, with an ordinary stack, and gives one to each thread that is
// started without a size of its own. From main(), once. Returns what `body` does.
int with_ordinary_stacks(int (*body)(int, char**), int argc, char** argv);

}  // namespace gpurun
