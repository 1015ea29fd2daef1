// What must be given back when a context ends.
#pragma once

#include <cstdint>

#include "server/emulated/objects/memory_registry.h"

namespace gpurun::emulated {

// Gives the memory of a range that is no longer registered back to its device or the system.
void release_memory(const MemoryRange& range);

// Unregisters and releases all memory that belongs to the context.
void release_memory_of_context(std::uint64_t context_handle);

}  // namespace gpurun::emulated
