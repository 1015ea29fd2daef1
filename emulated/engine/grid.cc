// The state that the blocks of one launch share.
#include "emulated/engine/grid.h"

#include <algorithm>
#include <utility>

#include "emulated/engine/block.h"

namespace gpurun::emulated {

namespace {

std::string triple(const Extent& extent) {
  return std::to_string(extent.x) + "x" + std::to_string(extent.y) + "x" + std::to_string(extent.z);
}

Extent extent_of(const std::uint32_t* values) {
  return values == nullptr ? Extent{0, 0, 0} : Extent{values[0], values[1], values[2]};
}

}  // namespace

Grid::Grid(const LaunchRequest& launch, Engine::Done when_done, std::uint64_t grid_id)
    : request(launch),
      done(std::move(when_done)),
      id(grid_id),
      block_count(launch.grid.count()),
      block_threads(static_cast<std::uint32_t>(launch.block.count())),
      cluster_blocks(static_cast<std::uint32_t>(launch.cluster.count())) {
  if (launch.cooperative) workspace = std::make_unique<GridWorkspace>();
}

void Grid::fail(int code, std::string message, const std::uint32_t* block,
                const std::uint32_t* thread, std::uint64_t address) {
  std::lock_guard lock(result_mutex_);
  if (result_.code == kGridOk) {
    result_.code = code;
    result_.message = std::move(message);
    result_.block = extent_of(block);
    result_.thread = extent_of(thread);
    result_.address = address;
  }
  stop_.store(true, std::memory_order_relaxed);
}

void Grid::block_id(std::uint64_t index, std::uint32_t block[3]) const {
  const Extent& c = request.cluster;
  const std::uint64_t in_cluster = index % cluster_blocks;
  const std::uint64_t cluster = index / cluster_blocks;
  const std::uint64_t clusters_x = request.grid.x / c.x;
  const std::uint64_t clusters_y = request.grid.y / c.y;
  block[0] = static_cast<std::uint32_t>(cluster % clusters_x * c.x + in_cluster % c.x);
  block[1] =
      static_cast<std::uint32_t>(cluster / clusters_x % clusters_y * c.y + in_cluster / c.x % c.y);
  block[2] =
      static_cast<std::uint32_t>(cluster / clusters_x / clusters_y * c.z + in_cluster / c.x / c.y);
}

GridResult Grid::take_result() {
  std::lock_guard lock(result_mutex_);
  if (result_.code != kGridOk) result_.kernel = std::string(request.name);
  return std::move(result_);
}

std::string Grid::describe() const {
  return std::string(request.name) + " (grid " + triple(request.grid) + ", block " +
         triple(request.block) + ")";
}

std::string Grid::describe_family() const {
  const GridFamily* const family = request.family;
  if (family == nullptr || family->launched == 0) return {};
  return " together with kernel " + std::string(family->root) + ", which launched it (number " +
         std::to_string(family->launched) + " of the kernels under it)";
}

}  // namespace gpurun::emulated
