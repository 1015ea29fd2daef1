// Which PTX of a fat binary a device that runs PTX takes.
//
// A real driver takes the newest PTX that is not newer than its device. A device that translates
// PTX can run every plain architecture, and the libraries' forward-compatibility PTX is what makes
// them work at all; only architecture-specific instructions (wgmma, tcgen05) are out of reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "driver_abi/fatbin.h"

namespace gpurun::driver_abi {

// What the device takes; the defaults are those of the emulated device.
struct PtxSelection {
  // Plain entries up to here are preferred, the highest first; above it the lowest comes first.
  std::uint32_t device_arch = 121;
  // Take plain entries above device_arch when there is nothing else.
  bool accept_newer = true;
  // Family-specific entries (120f) whose major number is this one are taken when no plain entry
  // exists; 0 takes none. cuDNN 9 ships compute_120f and nothing else.
  std::uint32_t family_major = 12;
  // Architecture-specific entries (90a, 100a): never, unless somebody asks for it.
  bool accept_arch_specific = false;
};

// Index into `entries` of the PTX to use, or nothing when none is fit. Entries that are equally
// good: the first one.
std::optional<std::size_t> select_ptx(const std::vector<FatbinEntry>& entries,
                                      const PtxSelection& selection = {});

}  // namespace gpurun::driver_abi
