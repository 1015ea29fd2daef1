// Host memory: the end of pinned memory.
#pragma once

#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {

// Frees memory that cuMemHostAlloc made. Does nothing for other kinds.
void free_host_range(const MemoryRange& range) noexcept;

}  // namespace gpurun::client::interpose
