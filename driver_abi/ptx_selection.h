// PTX selection: the PTX entry of a fat binary that a device takes if it runs PTX.
//
// A real driver takes the newest PTX that is not newer than its device. A device that translates
// PTX can run every plain architecture. It needs the libraries' forward-compatibility PTX to run
// them at all. It cannot run architecture-specific instructions (wgmma, tcgen05).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "driver_abi/fatbin.h"

namespace gpurun::driver_abi {

// What the device accepts. The defaults are those of the emulated device.
struct PtxSelection {
  // Plain entries up to this one are preferred, the highest first. Above it the lowest comes first.
  std::uint32_t device_arch = 121;
  // Accept plain entries above device_arch when there is no other.
  bool accept_newer = true;
  // Family-specific entries (120f) with this major number are taken when no plain entry exists. 0
  // takes none. cuDNN 9 ships compute_120f and nothing else.
  std::uint32_t family_major = 12;
  // Accept architecture-specific entries (90a, 100a). Only if explicitly requested.
  bool accept_arch_specific = false;
};

// The index into `entries` of the PTX to use. Nothing when no entry is fit. Of equally good entries
// the first one is used.
std::optional<std::size_t> select_ptx(const std::vector<FatbinEntry>& entries,
                                      const PtxSelection& selection = {});

}  // namespace gpurun::driver_abi
