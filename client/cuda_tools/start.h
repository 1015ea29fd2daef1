// Start: the command that runs in place of a ptxas.
//
// A tool chain starts the ptxas of its own package, by its path. gpurun's program runs that ptxas
// with the same arguments, and adds the PTX to what it writes (ptxas_output.h).
//
// Everything here runs in the child of a vfork(), so it allocates nothing and takes no lock of
// ours.
#pragma once

#include <climits>
#include <cstddef>

namespace gpurun::client::cuda_tools {

// The most arguments of a command that is changed. Their array lies on the caller's stack.
inline constexpr std::size_t kArgumentsMax = 4'096;
// The arguments that come before the command's own: our program's name, and the ptxas's path.
inline constexpr std::size_t kArgumentsAdded = 2;

struct Start {
  char program[PATH_MAX];  // gpurun-ptxas.
  char ptxas[PATH_MAX];
  char* arguments[kArgumentsMax + kArgumentsAdded + 1];
};

// Whether a path or a name is that of a ptxas.
bool is_ptxas(const char* file) noexcept;

// For such a file: whether it is to be started in another way. False: it does not exist, or we
// cannot. `search`: as execvp(3), a name without a slash is looked for in PATH. Leaves errno as it
// is.
bool change_start(const char* file, char* const* arguments, bool search, Start* start) noexcept;

}  // namespace gpurun::client::cuda_tools
