// Allocation and accounting of pools.
#include "emulated/objects/memory_pool.h"

#include "emulated/objects/device_arena.h"

namespace gpurun::emulated {

std::uint64_t MemoryPool::allocate(std::uint64_t bytes) {
  if (bytes_max != 0 && used.load() + bytes > bytes_max) return 0;
  const std::uint64_t address = arena_.allocate(bytes);
  if (address == 0) return 0;
  const std::uint64_t now = used.fetch_add(bytes) + bytes;
  for (auto* mark : {&used_high, &reserved_high}) {
    std::uint64_t high = mark->load();
    while (high < now && !mark->compare_exchange_weak(high, now)) {
    }
  }
  return address;
}

void MemoryPool::free(std::uint64_t address, std::uint64_t bytes) {
  arena_.free(address, bytes);
  used.fetch_sub(bytes);
}

}  // namespace gpurun::emulated
