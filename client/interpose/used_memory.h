// UsedMemory: how much device memory this process uses and on which devices it has contexts, told
// to the other processes of its gpurun by the MemoryBoard: NVML shows a device as all of them use
// it.
//
// Counts what the program has allocated: memory, memory of pools, arrays, VMM allocations. What a
// driver needs for itself is not in it. Immortal state; any thread.
#pragma once

#include <cstdint>

#include "client/handles.h"
#include "client/interpose/memory_ranges.h"

namespace gpurun::client::interpose {

// A range was added to or removed from those of memory_ranges.h. Of host memory and addresses
// alone: nothing.
void count_range(const MemoryRange& range, bool added) noexcept;
// Memory that a handle stands for, on the program's device `ordinal`; until forget_memory().
void count_memory(Handle handle, int ordinal, std::uint64_t bytes) noexcept;
// The handle has ended. Nothing when it was never counted.
void forget_memory(Handle handle) noexcept;
// A context of the worker's device has begun, or ended.
void count_context(int server_ordinal, bool begun) noexcept;

}  // namespace gpurun::client::interpose
