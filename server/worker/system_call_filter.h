// SystemCallFilter: which calls the kernel still does for a worker once strangers decide what runs
// in it (seccomp(2)).
//
// A forbidden call is not done and ends the process: one line on stderr names its number, and the
// exit status is kExitForbiddenCall. (Native code that replaces what writes that line saves its
// process, and gets no call done all the same.)
#pragma once

#include "base/status.h"

namespace gpurun::server {

enum class AllowedCalls {
  // What our own code, the C library, LLVM and the emulated device need, and nothing else: threads,
  // memory, clocks, and the descriptors that are open. Opening a file for reading fails with
  // EACCES, for libraries look for files that need not be there; all else ends the process.
  kEmulatedDevice,
  // All but what no driver needs: other processes (their memory, signals, priority), programs and
  // children, other users, mounts, namespaces, modules, keys, sockets of a network. NVIDIA's
  // driver is closed and opens device nodes as it goes.
  kAnyDriver,
};

// All threads of this process, for good, with no_new_privs. kUnavailable: the kernel has no such
// filters, or a thread has one of its own.
Status install_filter(AllowedCalls calls);

}  // namespace gpurun::server
