// Process limits (getrlimit(2)) of gpurund and its workers. A shell's `ulimit` is meant for the
// program that it starts, and must not end a server on the same machine.
#pragma once

#include "base/status.h"

namespace gpurun::server {

// Raises each limit of this process to its hard limit: descriptors, stack, address space, memory,
// locked memory, processes, sizes of files, processor time. The stack gets an ordinary limit where
// this process has the right to that. A file that becomes too large fails, and ends no process.
// Call first in main().
void raise_limits();
// For a private server, which belongs to one run of its user. Lifts limits above the hard limits,
// too, where this process has the right to that (root).
void lift_limits();
// kResourceExhausted: the limits are too low to serve one client.
Status check_limits();

}  // namespace gpurun::server
