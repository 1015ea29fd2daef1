// HostPointers: kernels that were given a pointer to pinned or registered host memory, which they
// cannot reach through gpurun. When a context ends with an illegal address, one line on stderr
// names the latest such kernel of that context, since nothing else names the cause.
#pragma once

#include "base/bytes.h"
#include "client/handles.h"
#include "client/interpose/memory_ranges.h"

namespace gpurun::client::interpose::modules {

struct Kernel;

// Looks through the parameters of a kernel that runs in `context`. Call it where
// host_memory_exists.
void note_host_pointers(const Kernel& kernel, ByteView block, Handle context) noexcept;

// Before a launch, or a node of a graph: costs a load as long as the program has no such memory.
inline void look_for_host_pointers(const Kernel& kernel, ByteView block, Handle context) noexcept {
  if (host_memory_exists()) note_host_pointers(kernel, block, context);
}

}  // namespace gpurun::client::interpose::modules
