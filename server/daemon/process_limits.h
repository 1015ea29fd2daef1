// The limits (getrlimit(2)) of gpurund, which its workers have, too. A shell's `ulimit` is meant
// for the program that it starts, and must not end a server beside it.
#pragma once

#include "base/status.h"

namespace gpurun::server {

// Raises each limit of this process as far as its hard one allows: descriptors, stack, address
// space, memory, locked memory, processes, sizes of files, processor time. The stack's becomes an
// ordinary one where this process has the right to that. A file that becomes too large fails, and
// ends no process. First in main().
void raise_limits();
// Of a private server, which belongs to one run of its user: beyond the hard limits, too, where
// this process has the right to that (root).
void lift_limits();
// kResourceExhausted: what is left is too little to serve one client.
Status check_limits();

}  // namespace gpurun::server
