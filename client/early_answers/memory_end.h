// MemoryEnd: whether the end of device memory follows the work that writes to it. Work that is
// reported as done too early may still write. The memory must not belong to anything else by then.
#pragma once

#include <cstdint>

namespace gpurun::client {

enum class MemoryEnd : std::uint8_t {
  kUnknown,     // The memory may end before the work: it is unmapped, or of another context.
  kBehindWork,  // Each call that ends the memory waits for the work: arrays, freed memory.
  kUnloaded,    // The variable of a module. Unloading ends it, so nothing can use its contents.
};

}  // namespace gpurun::client
