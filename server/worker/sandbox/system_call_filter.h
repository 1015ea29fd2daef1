// SystemCallFilter: the system calls that the kernel still executes for a worker once untrusted
// code runs in it (seccomp(2)).
//
// A forbidden call is not executed and ends the process. One line on stderr names its number, and
// the exit status is kExitForbiddenCall. Native code that replaces the handler for that line keeps
// its process, but still no forbidden call is executed.
#pragma once

#include "base/status.h"

namespace gpurun::server {

enum class AllowedCalls {
  // The calls that our own code, the C library, LLVM and the emulated device need: threads, memory,
  // clocks, and the open descriptors. Opening a file for reading fails with EACCES, because
  // libraries look for files that need not exist. Any other call ends the process.
  kEmulatedDevice,
  // All calls except those that no driver needs: other processes (their memory, signals, priority),
  // programs and children, other users, mounts, namespaces, modules, keys, network sockets.
  // NVIDIA's driver is closed source and opens device nodes as it runs.
  kAnyDriver,
};

// Applies to all threads of this process, permanently, with no_new_privs. kUnavailable: the kernel
// has no such filters, or a thread has one of its own.
Status install_filter(AllowedCalls calls);

}  // namespace gpurun::server
