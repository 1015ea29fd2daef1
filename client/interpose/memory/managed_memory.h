// Managed memory: memory of the host arena that host and device reach at any time
// (docs/adr/0040). Advice and prefetches move nothing. The state is immortal. Any thread.
#pragma once

#include <cstddef>

#include "client/interpose/call/forward.h"
#include "client/interpose/memory/memory_ranges.h"
#include "driver_abi/state/memory_advice.h"

namespace gpurun::client::interpose {

// What the program has said about its managed memory.
driver_abi::MemoryAdvice& managed_advice();
// Whether the program has, or ever had, managed memory. No lock.
bool managed_memory_exists() noexcept;

// cuMemAllocManaged, with arguments that were checked. OUT_OF_MEMORY: the arena has no room, or
// could not be opened. With `*address` set, a failure is that of an earlier call.
int allocate_managed_memory(const EntryContext& here, std::size_t bytes, unsigned flags,
                            CUdeviceptr* address);
// The memory at `address` is attached to the stream, or as `flags` (CUmemAttach_flags) say.
void note_attachment(const EntryContext& here, CUdeviceptr address, unsigned flags, Handle stream);
// The range of kind kManaged was removed, and no work uses it any more. Returns 0, or the failure
// of an earlier call.
int free_managed_memory(const EntryContext& here, const MemoryRange& range);

}  // namespace gpurun::client::interpose
