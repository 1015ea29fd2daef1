// MappedFile: the file of memory that cuMemMap has mapped.
#pragma once

#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {

// The file behind `range`, of kind kMapped, from its first byte. It stays open as long as the
// allocation. -1: the allocation has ended.
int mapped_file(const MemoryRange& range);

}  // namespace gpurun::emulated
