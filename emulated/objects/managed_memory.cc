// Managed variables are memory of the device that needed them first. They belong to no context.
#include "emulated/objects/managed_memory.h"

#include <algorithm>

#include "driver_abi/cuda_abi.h"
#include "emulated/objects/device.h"
#include "emulated/objects/memory_registry.h"
#include "emulated/objects/ownership.h"

namespace gpurun::emulated {

ManagedMemory::~ManagedMemory() {
  for (const std::uint64_t address : addresses_) {
    if (const auto range = memory_registry().take(address, {MemoryKind::kManaged})) {
      release_memory(*range);
    }
  }
}

Result<std::uint64_t> ManagedMemory::variable(std::size_t index, std::uint64_t bytes,
                                              Device& device) {
  if (index < addresses_.size()) return addresses_[index];
  const std::uint64_t address = device.arena().allocate(bytes);
  if (address == 0) return Status::cuda(CUDA_ERROR_OUT_OF_MEMORY, "device memory is used up");
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.kind = MemoryKind::kManaged;
  range.device = device.ordinal();
  range.flags = CU_MEM_ATTACH_GLOBAL;
  memory_registry().add(range);
  addresses_.push_back(address);
  return address;
}

bool ManagedMemory::holds(std::uint64_t address) const {
  return std::find(addresses_.begin(), addresses_.end(), address) != addresses_.end();
}

}  // namespace gpurun::emulated
