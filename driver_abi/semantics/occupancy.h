// Occupancy: the number of a kernel's blocks that fit on a multiprocessor, from the attributes of
// device and kernel. The client answers cuOccupancy* by it, and the emulated device its own queries
// and the limit of cooperative grids.
//
// The CUDA Programming Guide publishes the rules ("Hardware Multithreading", "Compute
// Capabilities", table of technical specifications). Nsight Compute's occupancy calculator shows
// the same. The toolkit's cuda_occupancy.h has the rule that no block exceeds its function's limit
// of dynamic shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "driver_abi/semantics/launch_limits.h"

namespace gpurun::driver_abi {

struct OccupancyDevice {
  int warp_threads = kWarpThreads;
  int capability_major = 0;
  int multiprocessors = 0;
  int threads_per_block = 0;
  int threads_per_multiprocessor = 0;
  int blocks_per_multiprocessor = 0;
  int registers_per_block = 0;
  int registers_per_multiprocessor = 0;
  int shared_per_multiprocessor = 0;
  int shared_per_block_optin = 0;
  int shared_reserved_per_block = 0;
};

struct OccupancyFunction {
  int registers = 0;  // Per thread. 0: they never limit.
  int threads_max = 0;
  int static_shared_bytes = 0;
  // The limit of a launch: 48 KiB less the static part, unless the program set another limit
  // (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES).
  int dynamic_shared_bytes_max = kUnknown;
  static constexpr int kUnknown = 0x7fffffff;
};

// The number of blocks of `block_threads` that one multiprocessor holds. 0: none can run. Launch
// bounds of the kernel do not count, nor does a lower limit of dynamic shared memory (driver 580 on
// an H200: tests/programs/behaviour/local_answers.cu).
int max_active_blocks(const OccupancyDevice& device, const OccupancyFunction& function,
                      int block_threads, std::size_t dynamic_shared_bytes) noexcept;

// The most dynamic shared memory that each of `blocks` blocks on a multiprocessor may have. Like
// the driver, this ignores the memory that the driver reserves for each block. So one block less
// may fit when all of it is used. Nothing when that many blocks do not fit.
std::optional<std::size_t> available_dynamic_shared(const OccupancyDevice& device,
                                                    const OccupancyFunction& function, int blocks,
                                                    int block_threads) noexcept;

// Whether all blocks of a cooperative grid run at once (manual, cuLaunchCooperativeKernel). If not,
// the launch returns COOPERATIVE_LAUNCH_TOO_LARGE.
bool holds_whole_grid(const OccupancyDevice& device, const OccupancyFunction& function,
                      const LaunchShape& launch) noexcept;

// The block size with which most threads run, and the smallest grid that then fills the device.
struct PotentialBlock {
  int block_threads = 0;
  int grid_blocks = 0;
};
// `dynamic_shared(user, threads)`: the dynamic shared memory of a block of `threads` threads.
PotentialBlock best_block(const OccupancyDevice& device, const OccupancyFunction& function,
                          std::size_t (*dynamic_shared)(void* user, int threads), void* user,
                          int threads_max);

// The program's parameters of cuOccupancyMaxPotentialBlockSize, for best_block(): a function of the
// block size, or nullptr and a constant.
struct SharedNeed {
  CUoccupancyB2DSize function;
  std::size_t bytes;

  static std::size_t of(void* user, int threads) {
    const auto* need = static_cast<const SharedNeed*>(user);
    return need->function == nullptr ? need->bytes : need->function(threads);
  }
};

}  // namespace gpurun::driver_abi
