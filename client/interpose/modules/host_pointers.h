// HostPointers: kernels that got a pointer to pinned or registered host memory.
//
// A worker elsewhere gets a copy of such pinned memory, so that the kernel reaches it
// (docs/adr/0042). A kernel cannot reach other such memory through gpurun. When a context ends with
// an illegal address, one line on stderr names the latest such kernel of that context. Nothing else
// shows the cause.
#pragma once

#include "base/bytes.h"
#include "client/interpose/call/forward.h"
#include "client/interpose/memory/memory_ranges.h"
#include "client/log/handles.h"

namespace gpurun::client::interpose::modules {

struct Kernel;

// Searches the parameters of a kernel that runs in `context`. Call it only if host_memory_exists().
void note_host_pointers(const EntryContext& here, const Kernel& kernel, ByteView block,
                        Handle context) noexcept;

// Called before a launch or a graph node. Costs one load while the program has no such memory.
inline void look_for_host_pointers(const EntryContext& here, const Kernel& kernel, ByteView block,
                                   Handle context) noexcept {
  if (host_memory_exists()) note_host_pointers(here, kernel, block, context);
}

}  // namespace gpurun::client::interpose::modules
