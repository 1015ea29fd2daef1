// Release of memory to where it came from.
#include "emulated/objects/ownership.h"

#include <sys/mman.h>

#include "emulated/objects/device.h"
#include "emulated/objects/imported_memory.h"
#include "emulated/objects/memory_pool.h"

namespace gpurun::emulated {

void release_memory(const MemoryRange& range) {
  switch (range.kind) {
    case MemoryKind::kDevice:
    case MemoryKind::kGraph:
    case MemoryKind::kModule:
    case MemoryKind::kArray:
    case MemoryKind::kManaged:
      if (Device* device = device_at(range.device)) device->arena().free(range.base, range.bytes);
      return;
    case MemoryKind::kPool:
      if (const auto pool = handles().find<MemoryPool>(range.owner_handle)) {
        pool->free(range.base, range.bytes);
      } else if (Device* device = device_at(range.device)) {
        device->arena().free(range.base, range.bytes);
      }
      return;
    case MemoryKind::kHost:
      munmap(reinterpret_cast<void*>(range.base), range.bytes);
      return;
    case MemoryKind::kImported:
      unmap_imported(range.base);
      return;
    case MemoryKind::kRegistered:
    case MemoryKind::kMapped:
      return;  // Not ours, or unmapped by the VMM.
  }
}

void release_memory_of_context(std::uint64_t context_handle) {
  for (const MemoryRange& range : memory_registry().take_of_context(context_handle)) {
    release_memory(range);
  }
}

}  // namespace gpurun::emulated
