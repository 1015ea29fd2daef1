// Plan: the place of each value of a function in its translation. A tile of one element is kept in
// a register, and so is a tile with elements that are known to be all the same. Every other tile
// lies in the thread's local memory. Values that are not needed at the same time share that memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "emulated/tile/ir.h"

namespace gpurun::emulated::tile {

// Bound of all tiles of a kernel together: the limit of a thread's local memory, in CUDA and in the
// code generator.
inline constexpr std::uint64_t kLocalBytesMax = 512 * 1024;

struct Plan {
  std::vector<bool> in_register;  // By ValueId. Tiles only.
  // In local memory, for tiles that are not in a register.
  std::vector<std::uint64_t> offsets;
  std::uint64_t local_bytes = 0;
};

// Also checks that regions take and give the values that their operations do.
// CUDA_ERROR_INVALID_IMAGE when they do not, CUDA_ERROR_INVALID_PTX when the tiles exceed the local
// memory.
Result<Plan> make_plan(const Program& program, const Function& function);

}  // namespace gpurun::emulated::tile
