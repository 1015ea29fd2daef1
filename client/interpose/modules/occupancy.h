// Occupancy: how many blocks of a kernel fit on a multiprocessor, from the attributes of device and
// kernel. The rules are those that the CUDA Programming Guide publishes ("Hardware Multithreading",
// "Compute Capabilities", table of technical specifications) and Nsight Compute's occupancy
// calculator shows; that no block has more dynamic shared memory than its function may ask for, the
// toolkit's cuda_occupancy.h. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "client/device_snapshot.h"

namespace gpurun::client::interpose::modules {

struct Function;

struct OccupancyDevice {
  int warp_threads = 32;
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

  static OccupancyDevice of(const Device& device);
};

struct OccupancyFunction {
  int registers = 0;  // Per thread.
  int threads_max = 0;
  int static_shared_bytes = 0;
  // What a launch may ask for: 48 KiB less the static part, unless the program set another limit
  // (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES).
  int dynamic_shared_bytes_max = kUnknown;
  static constexpr int kUnknown = 0x7fffffff;

  static OccupancyFunction of(const Function& function);
};

// Blocks of `block_threads` that one multiprocessor holds; 0: none can run. Launch bounds of the
// kernel do not count, and a lower limit of dynamic shared memory neither (driver 580 on an H200:
// tests/programs/behaviour/local_answers.cu).
int max_active_blocks(const OccupancyDevice& device, const OccupancyFunction& function,
                      int block_threads, std::size_t dynamic_shared_bytes) noexcept;

// Dynamic shared memory that each of `blocks` blocks on a multiprocessor may have at most, as the
// driver counts it: without what it reserves for each block, so that one block less may fit with
// all of it. Nothing when so many blocks do not fit.
std::optional<std::size_t> available_dynamic_shared(const OccupancyDevice& device,
                                                    const OccupancyFunction& function, int blocks,
                                                    int block_threads) noexcept;

// The largest block with which most threads run, and the smallest grid that then fills the device.
struct PotentialBlock {
  int block_threads = 0;
  int grid_blocks = 0;
};
// `dynamic_shared(user, threads)`: what a block of so many threads needs.
PotentialBlock best_block(const OccupancyDevice& device, const OccupancyFunction& function,
                          std::size_t (*dynamic_shared)(void* user, int threads), void* user,
                          int threads_max);

}  // namespace gpurun::client::interpose::modules
