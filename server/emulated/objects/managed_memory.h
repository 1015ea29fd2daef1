// ManagedMemory: the managed variables of a library. There is one of each, whatever the contexts
// that the library is loaded into: the host has one address for it (Programming Guide, "Unified
// Memory"), and kernels of every context must see what it writes there.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace gpurun::emulated {

class Device;

// One thread at a time.
class ManagedMemory {
 public:
  ManagedMemory() = default;
  ManagedMemory(const ManagedMemory&) = delete;
  ManagedMemory& operator=(const ManagedMemory&) = delete;
  // Releases them all.
  ~ManagedMemory();

  // Address of the image's managed variable `index`, of `bytes` (over 0), aligned to a page;
  // `index` counts from 0 without gaps. Memory of `device` when it is asked for first.
  // OUT_OF_MEMORY.
  Result<std::uint64_t> variable(std::size_t index, std::uint64_t bytes, Device& device);
  bool holds(std::uint64_t address) const;

  // Once a module of the library is loaded its variables have values, which the next one leaves.
  bool initialized() const { return initialized_; }
  void set_initialized() { initialized_ = true; }

 private:
  std::vector<std::uint64_t> addresses_;
  bool initialized_ = false;
};

}  // namespace gpurun::emulated
