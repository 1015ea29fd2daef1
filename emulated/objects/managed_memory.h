// ManagedMemory: the managed variables of a library. Each exists once, whatever the number of
// contexts that load the library. The host has one address for it (Programming Guide, "Unified
// Memory"), and kernels of every context must see what the host writes there.
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
  // Releases all of them.
  ~ManagedMemory();

  // The address of the image's managed variable `index`, of `bytes` (over 0), aligned to a page.
  // `index` counts from 0 without gaps. The first call takes memory of `device`. OUT_OF_MEMORY.
  Result<std::uint64_t> variable(std::size_t index, std::uint64_t bytes, Device& device);
  bool holds(std::uint64_t address) const;

  // Whether a module of the library has initialised the variables. Later modules leave their
  // values.
  bool initialized() const { return initialized_; }
  void set_initialized() { initialized_ = true; }

 private:
  std::vector<std::uint64_t> addresses_;
  bool initialized_ = false;
};

}  // namespace gpurun::emulated
