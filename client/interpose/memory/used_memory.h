// UsedMemory: the device memory that this process uses, and the devices on which it has contexts.
// The SharedMemoryPressure shows both to the other processes of the same gpurun. NVML shows a
// device as all of them together use it.
//
// Counts the program's allocations: memory, memory of pools, arrays, VMM allocations. The driver's
// own memory is not counted. The state is immortal. Any thread.
#pragma once

#include <cstdint>

#include "client/log/handles.h"

namespace gpurun::client::interpose {

// Memory of an address range (memory_ranges.h) was added or removed. `ordinal`: the program's
// number of the device.
void count_range(int ordinal, std::uint64_t bytes, bool added) noexcept;
// Counts memory behind a handle on the program's device `ordinal`, until forget_memory().
void count_memory(Handle handle, int ordinal, std::uint64_t bytes) noexcept;
// The handle has ended. Does nothing if it was never counted.
void forget_memory(Handle handle) noexcept;
// A context on the worker's device has begun or ended.
void count_context(int server_ordinal, bool begun) noexcept;

}  // namespace gpurun::client::interpose
