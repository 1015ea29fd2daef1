// Plan: where each value of a function lives in its translation. One element is kept in a register,
// also of a tile whose elements are all the same and known to be; a tile of several lies in the
// thread's local memory, which values share that are not needed at the same time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "server/emulated/tile/ir.h"

namespace gpurun::emulated::tile {

// What a kernel's tiles may take together: the bound of a thread's local memory in CUDA, and that
// of the code generator.
inline constexpr std::uint64_t kLocalBytesMax = 512 * 1024;

struct Plan {
  std::vector<bool> in_register;       // By ValueId; of tiles only.
  std::vector<std::uint64_t> offsets;  // In local memory, of tiles that are not.
  std::uint64_t local_bytes = 0;
};

// Checks too that regions take and give what their operations do. CUDA_ERROR_INVALID_IMAGE when
// they do not, CUDA_ERROR_INVALID_PTX when the tiles take more than there is.
Result<Plan> make_plan(const Program& program, const Function& function);

}  // namespace gpurun::emulated::tile
