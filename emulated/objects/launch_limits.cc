// Launch limits: how large a launch may be, and how many of its blocks fit (Programming Guide,
// "Occupancy Calculator"). Threads, blocks and shared memory bound it. Registers do not exist here.
#include "emulated/objects/launch_limits.h"

#include <algorithm>

#include "emulated/objects/device_limits.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

// Static and dynamic together, unless the program sets more.
constexpr std::uint64_t kSharedWithoutAsking = 48 << 10;

std::uint64_t warps_rounded(std::uint64_t threads) { return (threads + 31) / 32 * 32; }

// Each block has 1 KiB of the system's besides its own.
std::uint64_t shared_footprint(std::uint64_t bytes) {
  return (bytes + kSharedPiece - 1) / kSharedPiece * kSharedPiece + kSharedBytesReserved;
}

}  // namespace

bool extents_allowed(const Extent& grid, const Extent& block) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return false;
  if (block.x == 0 || block.y == 0 || block.z == 0) return false;
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) return false;
  if (block.x > 1024 || block.y > 1024 || block.z > 64) return false;
  return block.count() <= kBlockThreadsMax;
}

std::uint64_t shared_per_multiprocessor() {
  return static_cast<std::uint64_t>(shared_bytes_per_block_optin(settings().capability)) +
         kSharedBytesReserved;
}

int resident_blocks(const KernelAttributes& attributes, std::uint32_t dynamic_shared_bytes_max,
                    std::uint64_t block_threads, std::uint64_t dynamic_shared_bytes) {
  const int capability = settings().capability;
  if (block_threads == 0 || block_threads > kBlockThreadsMax) return 0;
  // A lower limit of the program's own bounds its launches, and not this answer.
  const std::uint64_t usual =
      kSharedWithoutAsking -
      std::min<std::uint64_t>(kSharedWithoutAsking, attributes.static_shared_bytes);
  if (dynamic_shared_bytes > std::max<std::uint64_t>(dynamic_shared_bytes_max, usual)) return 0;
  const auto by_threads = static_cast<std::uint64_t>(threads_per_multiprocessor(capability)) /
                          warps_rounded(block_threads);
  const std::uint64_t by_shared =
      shared_per_multiprocessor() /
      shared_footprint(attributes.static_shared_bytes + dynamic_shared_bytes);
  return static_cast<int>(std::min(
      {by_threads, by_shared, static_cast<std::uint64_t>(blocks_per_multiprocessor(capability))}));
}

}  // namespace gpurun::emulated
