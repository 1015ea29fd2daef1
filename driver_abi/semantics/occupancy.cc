// Occupancy: how warps, registers and shared memory are rounded, and which limit is reached first.
#include "driver_abi/semantics/occupancy.h"

#include <algorithm>

namespace gpurun::driver_abi {
namespace {

// Registers are allocated to warps in units of 256, from four register files, one for each warp
// scheduler (all devices since compute capability 5.0).
constexpr int kRegisterRun = 256;
constexpr int kRegisterFiles = 4;
constexpr int kUnlimited = 1 << 30;

template <typename T>
T round_up(T value, T to) {
  return (value + to - 1) / to * to;
}

// Shared memory is allocated in units of 256 bytes, or 128 from capability 8.0 on.
std::size_t shared_run(const OccupancyDevice& device) {
  return device.capability_major >= 8 ? 128 : 256;
}

int by_registers(const OccupancyDevice& device, const OccupancyFunction& function, int warps) {
  if (function.registers <= 0) return kUnlimited;
  const int per_warp = round_up(function.registers * device.warp_threads, kRegisterRun);
  if (per_warp * round_up(warps, kRegisterFiles) > device.registers_per_block) return 0;
  const int warps_in_file = device.registers_per_multiprocessor / kRegisterFiles / per_warp;
  return warps_in_file * kRegisterFiles / warps;
}

std::size_t most_dynamic(const OccupancyFunction& function) {
  return static_cast<std::size_t>(std::max(function.dynamic_shared_bytes_max, 0));
}

int by_shared(const OccupancyDevice& device, const OccupancyFunction& function,
              std::size_t dynamic_bytes) {
  const auto fixed = static_cast<std::size_t>(function.static_shared_bytes) +
                     static_cast<std::size_t>(device.shared_reserved_per_block);
  const auto whole = static_cast<std::size_t>(device.shared_per_multiprocessor);
  // A lower limit of the program bounds its launches, but not this answer.
  const auto usual =
      static_cast<std::size_t>(std::max(kSharedBytesUsual - function.static_shared_bytes, 0));
  if (dynamic_bytes > whole || dynamic_bytes > std::max(most_dynamic(function), usual)) return 0;
  const std::size_t block = round_up(fixed + dynamic_bytes, shared_run(device));
  return block == 0 ? kUnlimited : static_cast<int>(whole / block);
}

}  // namespace

int max_active_blocks(const OccupancyDevice& device, const OccupancyFunction& function,
                      int block_threads, std::size_t dynamic_shared_bytes) noexcept {
  if (block_threads <= 0 || block_threads > device.threads_per_block) return 0;
  const int warps = round_up(block_threads, device.warp_threads) / device.warp_threads;
  const int by_warps = device.threads_per_multiprocessor / device.warp_threads / warps;
  return std::min({device.blocks_per_multiprocessor, by_warps,
                   by_registers(device, function, warps),
                   by_shared(device, function, dynamic_shared_bytes)});
}

std::optional<std::size_t> available_dynamic_shared(const OccupancyDevice& device,
                                                    const OccupancyFunction& function, int blocks,
                                                    int block_threads) noexcept {
  if (blocks <= 0 || max_active_blocks(device, function, block_threads, 0) < blocks) return {};
  const std::size_t run = shared_run(device);
  const std::size_t share = static_cast<std::size_t>(device.shared_per_multiprocessor) /
                            static_cast<std::size_t>(blocks) / run * run;
  const auto fixed = static_cast<std::size_t>(function.static_shared_bytes);
  const std::size_t block =
      std::min(share, static_cast<std::size_t>(device.shared_per_block_optin));
  return block < fixed ? 0 : std::min(block - fixed, most_dynamic(function));
}

bool holds_whole_grid(const OccupancyDevice& device, const OccupancyFunction& function,
                      const LaunchShape& launch) noexcept {
  // A block of more threads than fit into an int is beyond every device.
  const std::uint64_t threads = std::uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  const int block_threads = threads > kUnlimited ? kUnlimited : static_cast<int>(threads);
  const int per_multiprocessor =
      max_active_blocks(device, function, block_threads, launch.dynamic_shared_bytes);
  const auto room = static_cast<std::uint64_t>(per_multiprocessor) *
                    static_cast<std::uint64_t>(device.multiprocessors);
  const std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1];
  return blocks <= room && blocks * launch.grid[2] <= room;
}

PotentialBlock best_block(const OccupancyDevice& device, const OccupancyFunction& function,
                          std::size_t (*dynamic_shared)(void* user, int threads), void* user,
                          int threads_max) {
  int limit = device.threads_per_block;
  if (function.threads_max > 0) limit = std::min(limit, function.threads_max);
  if (threads_max > 0) limit = std::min(limit, threads_max);
  PotentialBlock best;
  int most_threads = 0;
  for (int aligned = round_up(limit, device.warp_threads); aligned > 0;
       aligned -= device.warp_threads) {
    const int threads = std::min(aligned, limit);
    const int blocks = max_active_blocks(device, function, threads, dynamic_shared(user, threads));
    // The larger of two equally good sizes, because it comes first.
    if (blocks * threads > most_threads) {
      most_threads = blocks * threads;
      best = {threads, blocks * device.multiprocessors};
    }
    if (most_threads == device.threads_per_multiprocessor) break;
  }
  return best;
}

}  // namespace gpurun::driver_abi
