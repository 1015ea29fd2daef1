// Host memory: the end of pinned memory.
#pragma once

#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {

// Frees memory of this process that cuMemHostAlloc made. Does nothing for other memory: a range
// that the device reaches belongs to the arena (client/interpose/memory/host_arena.h).
void free_host_range(const MemoryRange& range) noexcept;

}  // namespace gpurun::client::interpose
