// Ownership: the memory to release when a context ends.
#pragma once

#include <cstdint>

#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {

// Returns the memory of a range to its device or to the system. The range is no longer registered.
void release_memory(const MemoryRange& range);

// Unregisters and releases all memory that belongs to the context.
void release_memory_of_context(std::uint64_t context_handle);

}  // namespace gpurun::emulated
